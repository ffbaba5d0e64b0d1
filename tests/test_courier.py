"""What carries checks to a server, where it needs none to be looked at."""

import asyncio
import struct
import time
from collections.abc import Sequence

import pytest

from throttled_views import Quota, StoreUnavailableError
from throttled_views.algorithms.kernels import kernel_of
from throttled_views.stores.courier import Answered, Courier, Line, Word
from throttled_views.stores.deciding import Taken
from throttled_views.stores.denials import Denials
from throttled_views.stores.wire import Asked, spec_of

SPEC = spec_of(kernel_of(Quota.per_hour(3)), 1)
SHORT_S = 0.05


def taken(
    asked: Asked,
    admitted: bool,  # noqa: FBT001 - as `Finish` has it
    now_us: int,
    _begun: object,
    answer: Sequence[int],
) -> Taken:
    """Return what a check of one limit comes to."""
    [(key, spec)] = asked
    return spec.taken(key, admitted, now_us, answer)


class Broken:
    """A line that makes a mistake, whatever it is asked."""

    def ask(self, command: Sequence[Word], answered: Answered) -> None:
        """Make a mistake."""
        del command, answered
        raise ZeroDivisionError

    def hang_up(self) -> None:
        """Do nothing."""

    async def aclose(self) -> None:
        """Do nothing."""


class Mistaken(Broken):
    """A line on which a mistake is made later."""

    def ask(self, command: Sequence[Word], answered: Answered) -> None:
        """Make a mistake in a while."""
        del command
        asyncio.get_running_loop().call_soon(answered, ZeroDivisionError())


def courier_on(line: Line, timeout: float = 10) -> Courier:
    """Return what takes checks to *line*."""
    return Courier(
        lambda: line,
        lines=1,
        timeout=timeout,
        clock_us=lambda: 0,
        begin=Denials(None).begin,
    )


@pytest.mark.parametrize("line", [Broken(), Mistaken()], ids=["at once", "later"])
async def test_a_mistake_is_told_as_it_is(line: Line) -> None:
    """What is no outage is not taken for one."""
    courier = courier_on(line)

    answers = await asyncio.gather(
        courier.check((("a", SPEC),), taken),
        courier.check((("b", SPEC),), taken),
        return_exceptions=True,
    )
    await courier.aclose()

    assert [ZeroDivisionError] * 2 == [type(answer) for answer in answers]


async def test_a_mistake_in_what_is_made_of_an_answer_is_told() -> None:
    """Only who asked for it hears of it, and the line is not used again as it is."""
    line = Answering()

    def fails(*_answer: object) -> Taken:
        raise ZeroDivisionError

    courier = courier_on(line)
    with pytest.raises(ZeroDivisionError):
        await courier.check((("a", SPEC),), fails)
    hung_up = line.hung_up
    await courier.aclose()

    assert 1 == hung_up


class Answering(Broken):
    """A line that admits all."""

    def __init__(self) -> None:
        self.hung_up = 0

    def ask(self, command: Sequence[Word], answered: Answered) -> None:
        """Admit a request of one limit."""
        del command
        reply = struct.pack("<4q", 1, 1, 0, 0)
        asyncio.get_running_loop().call_soon(answered, reply)

    def hang_up(self) -> None:
        """Count."""
        self.hung_up += 1


class Noting(Answering):
    """A line that notes how many words it was to send, and admits all."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = 0

    def ask(self, command: Sequence[Word], answered: Answered) -> None:
        """Note, and admit."""
        self.sent += 1
        super().ask(command, answered)


async def test_a_check_is_sent_at_once_if_nothing_else_is_to_run() -> None:
    """One alone waits for no iteration of the loop."""
    line = Noting()
    courier = courier_on(line)

    future = courier.check((("a", SPEC),), taken)
    sent = line.sent
    await future
    await courier.aclose()

    assert 1 == sent


async def test_a_check_waits_for_what_may_ask_in_the_same_iteration() -> None:
    """It is sent when all that was to run has run."""
    line = Noting()
    courier = courier_on(line)
    asyncio.get_running_loop().call_soon(lambda: None)  # it might ask

    future = courier.check((("a", SPEC),), taken)
    sent = line.sent
    await future
    await courier.aclose()

    assert (0, 1) == (sent, line.sent)


async def test_a_loop_that_tells_nothing_has_always_something_to_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All that an iteration asks for travels together, whatever the loop."""
    line = Noting()
    with monkeypatch.context() as patch:
        patch.delattr(asyncio.get_running_loop(), "_ready")
        courier = courier_on(line)

    future = courier.check((("a", SPEC),), taken)
    sent = line.sent
    await future
    await courier.aclose()

    assert (0, 1) == (sent, line.sent)


async def test_a_loop_that_was_held_up_is_no_outage() -> None:
    """What is answered as soon as it goes on is heard, time after time."""
    courier = courier_on(Answering(), timeout=SHORT_S)
    for _ in range(4):
        asyncio.get_running_loop().call_soon(int)  # so that the check is not yet sent
        future = courier.check((("a", SPEC),), taken)
        hold_up()
        limited, *_ = await future

        assert not limited
    await courier.aclose()


async def test_a_silent_server_is_given_up_though_the_loop_is_held_up() -> None:
    """It is waited for a little longer, once."""
    line = Silent()
    courier = courier_on(line, timeout=SHORT_S)
    future = courier.check((("a", SPEC),), taken)
    with pytest.raises(StoreUnavailableError, match="deadline"):
        await future
    line.is_held_up = False
    await courier.aclose()

    assert line.held_up < 10


class Silent(Answering):
    """A line on which nothing is ever heard, in a loop that is always held up."""

    def __init__(self) -> None:
        super().__init__()
        self.is_held_up = True
        self.held_up = 0

    def ask(self, command: Sequence[Word], answered: Answered) -> None:
        """Hear nothing."""
        del command, answered
        self._go_on()

    def _go_on(self) -> None:
        if self.is_held_up:
            self.held_up += 1
            hold_up()
            asyncio.get_running_loop().call_soon(self._go_on)


def hold_up() -> None:
    """Do what an application should do in a thread."""
    time.sleep(SHORT_S * 2)


@pytest.mark.parametrize("key", ["plain", "\ud800", "\x00|{}", "é" * 100])
async def test_whatever_a_key_is_made_of_spoils_no_batch(key: str) -> None:
    """Each key can be sent; a lone surrogate, too."""
    courier = courier_on(Answering())

    limited, *_ = await courier.check(((key, SPEC),), taken)
    await courier.aclose()

    assert not limited
