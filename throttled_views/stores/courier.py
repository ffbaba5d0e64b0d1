"""
Coalescing: the checks of one loop iteration go to the server together.

How it keeps its promises:

1. A check joins the batch that is open; the first one opens it and starts its deadline.
   It is sent when this iteration of the loop is over, so that those of the same
   iteration are with it; at once, if nothing else is to run in it.
2. There is no task, and nothing runs while there is nothing to do: who sends, who hears
   the answer and who gives up are callbacks of the loop. Two connections let client and
   server work at the same time; a batch is kept small for the same reason.
3. Whoever asks waits for a future of its own. To cancel it is to stop waiting: never
   does it touch a batch, a connection, or anybody else. What is cancelled before it is
   sent is not sent, unless it gives something back.
4. A charge is sent once. If its fate is unknown, because the connection broke or the
   deadline passed after sending, it fails; nobody sends it again.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Callable, Sequence, Sized
from contextvars import Context
from functools import partial
from typing import Any, Protocol, TypeAlias

from throttled_views.errors import StoreUnavailableError
from throttled_views.stores.wire import (
    Asked,
    Script,
    encoded_key,
    encoded_ops,
    script_of,
)

__all__ = [
    "Answered",
    "Batch",
    "Call",
    "Command",
    "Courier",
    "Finish",
    "Line",
    "NoScriptError",
    "Word",
    "unavailable",
]

# Verdicts of acquire.lua; 0 is that it is refused.
_ADMITTED, _NOT_STORED, _REFUSED_BY_ANOTHER_QUOTA = 1, 2, 3
_MOST_LIMITS = 32  # of a batch: the server decides them while the next is encoded
# Of the timeout: with less left, nothing is sent to a silent server, and a loop that is
# later than that was held up.
_TOO_LATE = 0.1

Word: TypeAlias = "bytes | str | int"
"""A word of a command."""

Answered: TypeAlias = Callable[[Any], None]
"""Gets the reply to a command, or an error in its place."""

Finish: TypeAlias = Callable[[Asked, bool, int, Any, Sequence[int]], Any]
"""
Makes of an answer what the one who asked gets.

Of what was asked, whether it was admitted, the store's time in microseconds, what was
noted when its batch was opened (None if a key is held to another quota so far, so that
nobody knows how it goes on), and what the kinds of its limits answer, one after the
other.
"""


class Line(Protocol):
    """Something that takes commands to a server, one at a time."""

    def ask(self, command: Sequence[Word], answered: Answered) -> None:
        """
        Send a command.

        Args:
            command: Its words.
            answered: Called once with the reply, later; or with a `NoScriptError` if
                the server does not know the script, a `StoreUnavailableError` for all
                else that a server or a network may say, and what is a mistake as it is.
        """
        ...

    def hang_up(self) -> None:
        """Close the connection; nobody is told of what was on its way."""
        ...

    async def aclose(self) -> None:
        """Hang up, and wait until nothing is under way."""
        ...


class NoScriptError(StoreUnavailableError):
    """The server does not know the script that it is to run."""


class Call:
    """
    Something to send, and all that wait for it.

    Attributes:
        deadline: When it is given up, by the clock of the loop.
        line: What it is on its way by.
        is_over: Whether all that waited were told something.
        is_spared: Whether the deadline was put off: the loop was late itself.
    """

    __slots__ = ("deadline", "is_over", "is_spared", "line")

    def __init__(self) -> None:
        self.deadline = 0.0
        self.line: Line | None = None
        self.is_over = False
        self.is_spared = False

    def is_wanted(self) -> bool:
        """Tell whether anybody still waits."""
        raise NotImplementedError

    def command(self) -> tuple[Script | None, Sequence[Word]]:
        """Return what to send: a script and what it is given, or a whole command."""
        raise NotImplementedError

    def deliver(self, reply: Any) -> None:
        """Tell those who wait."""
        raise NotImplementedError

    def fail(self, error: BaseException) -> None:
        """Tell those who wait that there is no answer."""
        raise NotImplementedError


class Command(Call):
    """
    A command that nothing is added to, such as a refund.

    Args:
        script: The script to run, if it is one.
        words: What the script is given, or the command.
        future: Gets the reply.
        is_due: Whether it is to be sent even if nobody waits any more.
    """

    __slots__ = ("_future", "_is_due", "_script", "_words")

    def __init__(
        self,
        script: Script | None,
        words: Sequence[Word],
        future: asyncio.Future[Any],
        *,
        is_due: bool,
    ) -> None:
        super().__init__()
        self._is_due = is_due
        self._script = script
        self._words = words
        self._future = future

    def is_wanted(self) -> bool:
        """See `Call.is_wanted`."""
        return self._is_due or not self._future.done()

    def command(self) -> tuple[Script | None, Sequence[Word]]:
        """See `Call.command`."""
        return self._script, self._words

    def deliver(self, reply: Any) -> None:
        """See `Call.deliver`."""
        if not self._future.done():
            self._future.set_result(reply)

    def fail(self, error: BaseException) -> None:
        """See `Call.fail`."""
        _fail(self._future, error)


class Batch(Call):
    """
    Checks that are decided by one call of the script.

    Args:
        clock_us: What the script is told of the time.
        begun: What was noted when it was opened.
        slot: Where its keys are in a cluster.
        looks_only: Whether nothing is charged.

    Attributes:
        slot: Where its keys are in a cluster.
        size: Limits in it.
    """

    __slots__ = ("_begun", "_clock_us", "_looks_only", "_requests", "size", "slot")

    def __init__(
        self,
        clock_us: Callable[[], int],
        begun: Any,
        slot: int = 0,
        *,
        looks_only: bool = False,
    ) -> None:
        super().__init__()
        self.slot = slot
        self._begun = begun
        self._clock_us = clock_us
        self._looks_only = looks_only
        # Tuples without names: they are made for each check.
        self._requests: list[tuple[Asked, Finish, asyncio.Future[Any]]] = []
        self.size = 0

    def add(self, asked: Asked, finish: Finish, future: asyncio.Future[Any]) -> None:
        """Add a request; *future* gets what *finish* makes of its answer."""
        self._requests.append((asked, finish, future))
        self.size += len(asked)

    def is_wanted(self) -> bool:
        """See `Call.is_wanted`; whoever does not wait any more is left out."""
        self._requests = [each for each in self._requests if not each[2].done()]
        return bool(self._requests)

    def command(self) -> tuple[Script | None, Sequence[Word]]:
        """See `Call.command`."""
        now_us = self._clock_us()
        if self.size == 1 and not self._looks_only:
            [([(key, spec)], _, _)] = self._requests
            script = script_of("acquire_one", frozenset([spec.kind]))
            return script, (1, encoded_key(key), now_us, spec.raw)
        keys, specs, ops = encoded_ops([asked for asked, _, _ in self._requests])
        script = script_of("acquire", frozenset([spec.kind for spec in specs]))
        raw = b"".join([spec.raw for spec in specs])
        return script, (len(keys), *keys, now_us, int(self._looks_only), raw, ops)

    def deliver(self, reply: Any) -> None:
        """See `Call.deliver`."""
        packed, why = (reply, b"") if isinstance(reply, bytes) else reply
        numbers = struct.unpack(f"<{len(packed) // 8}q", packed)
        now_us, at = numbers[0], 1
        for asked, finish, future in self._requests:
            verdict, start = numbers[at], at + 1
            at = start
            for _, spec in asked:
                at += spec.width
            if future.done():
                continue
            if verdict == _NOT_STORED:
                future.set_exception(_not_stored(why))
                continue
            begun = self._begun
            if verdict == _REFUSED_BY_ANOTHER_QUOTA:
                begun = None
            is_admitted = verdict == _ADMITTED
            answer = finish(asked, is_admitted, now_us, begun, numbers[start:at])
            future.set_result(answer)
        if b"READONLY" in why:
            raise _not_stored(why)  # another is the primary by now

    def fail(self, error: BaseException) -> None:
        """See `Call.fail`."""
        for _, _, future in self._requests:
            _fail(future, error)


def _fail(future: asyncio.Future[Any], error: BaseException) -> None:
    """Tell who waits; what is no outage is a mistake of ours, and told as it is."""
    if not future.done():
        # To each an error of its own: a raised one keeps its way.
        is_outage = isinstance(error, StoreUnavailableError)
        future.set_exception(unavailable(error) if is_outage else error)


def unavailable(cause: BaseException, text: str = "") -> StoreUnavailableError:
    """Return an error that says *text*, or what *cause* says."""
    error = StoreUnavailableError(text or str(cause) or repr(cause))
    error.__cause__ = cause
    return error


def _not_stored(why: bytes) -> StoreUnavailableError:
    return StoreUnavailableError(why.decode(errors="replace"))


class Courier:
    """
    Takes checks to one server, for one event loop.

    Args:
        open_line: Makes a line; nothing is opened yet.
        lines: Lines to hold at most.
        timeout: Seconds for a call, from its first check until it is answered.
        clock_us: What a script is told of the time; the least number that it can be
            told, -2**53, leaves it to the server.
        begin: What to note when a batch is opened, for those who finish its answers.
    """

    def __init__(
        self,
        open_line: Callable[[], Line],
        *,
        lines: int,
        timeout: float,
        clock_us: Callable[[], int],
        begin: Callable[[], Any],
    ) -> None:
        self._free = [open_line() for _ in range(lines)]
        self._lines = tuple(self._free)
        self._timeout = timeout
        self._clock_us = clock_us
        self._begin = begin
        self._loop = asyncio.get_running_loop()
        self._alarm: asyncio.TimerHandle | None = None
        self._calls: deque[Call] = deque()  # by their deadlines
        self._open: dict[int, Batch] = {}
        self._ready: deque[Call] = deque()
        self._sending: asyncio.Handle | None = None
        # What is still to run in this iteration. The name is private; a loop that has
        # no such thing has always something to run.
        self._still_to_run: Sized = getattr(self._loop, "_ready", (None,))

    def check(self, asked: Asked, finish: Finish, slot: int = 0) -> asyncio.Future[Any]:
        """
        Ask for one request; its limits are charged together, or not at all.

        Args:
            asked: The limits of the request.
            finish: Makes of the answer what the future gets.
            slot: Where their keys are in a cluster; a batch is of one slot.
        """
        future: asyncio.Future[Any] = asyncio.Future(loop=self._loop)
        batch = self._open.get(slot)
        if batch is None:
            batch = self._open[slot] = Batch(self._clock_us, self._begin(), slot)
            batch.add(asked, finish, future)
            self._submit(batch)
        else:
            batch.add(asked, finish, future)
        if batch.size >= _MOST_LIMITS:
            self._seal(batch)
        return future

    def look(self, asked: Asked, finish: Finish) -> asyncio.Future[Any]:
        """Ask as `check` does, and charge nothing."""
        future: asyncio.Future[Any] = self._loop.create_future()
        batch = Batch(self._clock_us, self._begin(), looks_only=True)
        batch.add(asked, finish, future)
        self._submit(batch)
        return future

    def command(
        self, script: Script | None, words: Sequence[Word], *, is_due: bool = False
    ) -> asyncio.Future[Any]:
        """
        Run *script* with *words*, or the command that they are.

        If it *is due*, it is sent even if nobody waits for it any more.
        """
        future: asyncio.Future[Any] = self._loop.create_future()
        self._submit(Command(script, words, future, is_due=is_due))
        return future

    def _submit(self, call: Call) -> None:
        call.deadline = self._loop.time() + self._timeout
        while self._calls and self._calls[0].is_over:
            self._calls.popleft()
        self._calls.append(call)
        if self._alarm is None:  # one for all: a timer for each would cost a heap
            self._alarm = self._alarm_at(call.deadline)
        self._ready.append(call)
        if not self._free or self._sending is not None:
            return
        if self._still_to_run:
            self._sending = self._loop.call_soon(self._send_ready)
        else:  # nobody else can ask in this iteration, and to wait for it costs
            self._send_ready()

    def _send_ready(self) -> None:
        """Send what is ready, as far as lines are free."""
        self._sending = None
        while self._ready and self._free:
            call = self._ready.popleft()
            self._seal(call)
            if not call.is_over and call.is_wanted():
                call.line = self._free.pop()
                self._send(call, call.line)
            else:
                call.is_over = True

    def _seal(self, call: Call) -> None:
        """Let nobody join *call* any more."""
        if isinstance(call, Batch) and self._open.get(call.slot) is call:
            del self._open[call.slot]

    def _send(self, call: Call, line: Line) -> None:
        try:
            script, words = call.command()
            command = words if script is None else ("EVALSHA", script.digest, *words)
            line.ask(command, partial(self._answered, call, line, script, words))
        except Exception as error:  # noqa: BLE001 - it is told to those who wait
            call.fail(error)
            self._release(call, line)

    def _answered(
        self,
        call: Call,
        line: Line,
        script: Script | None,
        words: Sequence[Word],
        reply: Any,
    ) -> None:
        """Hear the reply to *call*; a server that does not know its script gets it."""
        if isinstance(reply, NoScriptError) and script is not None:
            command = ("EVAL", script.text, *words)
            line.ask(command, partial(self._answered, call, line, None, words))
            return
        if isinstance(reply, Exception):
            call.fail(reply)
        else:
            self._deliver(call, line, reply)
        self._release(call, line)

    @staticmethod
    def _deliver(call: Call, line: Line, reply: Any) -> None:
        try:
            call.deliver(reply)
        except (IndexError, TypeError, ValueError, struct.error) as error:
            line.hang_up()
            text = f"The server answers what cannot be read: {reply!r:.80}"
            call.fail(unavailable(error, text))
        except Exception as error:  # noqa: BLE001 - it is told to those who wait
            line.hang_up()
            call.fail(error)

    def _release(self, call: Call, line: Line) -> None:
        call.line = None
        call.is_over = True
        self._free.append(line)
        if self._ready and self._sending is None:
            self._send_ready()

    def _expire(self) -> None:
        """Give up all calls whose deadline is over, and wait for the next one."""
        over = self._overdue()
        for call in over:  # before lines are free, on which they would be sent
            if call.line is None and not call.is_over:
                self._seal(call)
                call.is_over = True
                call.fail(StoreUnavailableError("No connection was free in time"))
        for call in over:
            if call.line is not None:
                call.line.hang_up()
                call.fail(
                    StoreUnavailableError("The deadline passed without an answer")
                )
                self._release(call, call.line)
        self._alarm = self._alarm_at(self._calls[0].deadline) if self._calls else None

    def _overdue(self) -> list[Call]:
        """
        Return the calls that are to be given up, and forget them.

        Code of others may hold the loop up longer than any deadline. That is no outage:
        what came meanwhile is heard first, so each call is spared once then.
        """
        now, spare_s = self._loop.time(), self._timeout * _TOO_LATE
        assert self._alarm is not None  # noqa: S101 - it has just rung
        was_held_up = now > self._alarm.when() + spare_s
        over: list[Call] = []
        spared: list[Call] = []
        while self._calls and (
            self._calls[0].is_over or self._calls[0].deadline <= now + spare_s
        ):
            call = self._calls.popleft()
            if was_held_up and not (call.is_over or call.is_spared):
                call.is_spared, call.deadline = True, now + spare_s
                spared.append(call)
            else:
                over.append(call)
        self._calls.extendleft(reversed(spared))
        return over

    def _alarm_at(self, when: float) -> asyncio.TimerHandle:
        # In a context of its own: it may never be without calls, and a request's
        # variables are not to live on in it.
        return self._loop.call_at(when, self._expire, context=Context())

    async def aclose(self) -> None:
        """Give up what is under way, and close all lines."""
        for handle in filter(None, [self._alarm, self._sending]):
            handle.cancel()
        for call in self._calls:
            call.fail(StoreUnavailableError("The store was closed"))
        for line in self._lines:  # all of them, even if we are cancelled now
            line.hang_up()
        await asyncio.gather(*(line.aclose() for line in self._lines))
