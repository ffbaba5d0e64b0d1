"""What carries checks to a server, where it needs none to be looked at."""

import asyncio
from typing import Any

import pytest

from throttled_views import Quota
from throttled_views.algorithms.kernels import kernel_of
from throttled_views.stores.courier import Courier
from throttled_views.stores.denials import Denials
from throttled_views.stores.wire import spec_of

SPEC = spec_of(kernel_of(Quota.per_hour(3)), 1)


class Broken:
    """A line that makes a mistake whatever it is asked."""

    def __init__(self) -> None:
        self.closed = 0

    async def ask(self, *_command: Any) -> Any:  # noqa: ANN401 - as `Line` has it
        """Make a mistake."""
        raise ZeroDivisionError

    async def hang_up(self) -> None:
        """Count."""
        self.closed += 1


async def test_a_mistake_is_told_as_it_is() -> None:
    """What is no outage is not taken for one, and the connection is not used again."""
    line, denials = Broken(), Denials(None)
    courier = Courier(
        lambda: line,
        lines=1,
        timeout=10,
        clock_us=lambda: 0,
        begin=denials.begin,
        told=lambda key, spec, admitted, now_us, begun, answer: spec.taken(
            key, admitted, now_us, answer
        ),
    )

    answers = await asyncio.gather(
        courier.check_one("a", SPEC),
        courier.check_one("b", SPEC),
        return_exceptions=True,
    )
    closed = line.closed
    await courier.aclose()

    assert [ZeroDivisionError] * 2 == [type(answer) for answer in answers]
    assert 1 == closed


def test_nothing_is_known_of_a_key_that_was_not_refused() -> None:
    """Whoever was not refused is asked for."""
    assert Denials(None).taken("alice", SPEC) is None


@pytest.mark.parametrize("key", ["plain", "\ud800", "\x00|{}", "é" * 100])
async def test_whatever_a_key_is_made_of_spoils_no_batch(key: str) -> None:
    """Each key can be sent; a lone surrogate, too."""
    line = Broken()
    courier = Courier(
        lambda: line,
        lines=1,
        timeout=10,
        clock_us=lambda: 0,
        begin=tuple,
        told=lambda key, spec, admitted, now_us, begun, answer: spec.taken(
            key, admitted, now_us, answer
        ),
    )

    with pytest.raises(ZeroDivisionError):  # of the line, which was asked
        await courier.check_one(key, SPEC)
    await courier.aclose()
