"""
Coalescing: the checks of one loop iteration go to the server together.

How it keeps its promises:

1. A check joins the batch that is open; the first one opens it and starts its deadline.
   It is sent when the loop comes back to its tasks, so that one check alone waits for
   nothing, and those of the same iteration are with it.
2. There is no task while there is nothing to do. A task is started for a connection
   that is free, and sends what is ready until nothing is. Two connections let client
   and server work at the same time; a batch is kept small for the same reason.
3. Whoever asks waits for a future of its own. To cancel it is to stop waiting: never
   does it touch a batch, a connection, or anybody else. What is cancelled before it is
   sent is not sent.
4. A charge is sent once. If its fate is unknown, because the connection broke or the
   deadline passed after sending, it fails; nobody sends it again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context
from typing import Any, Protocol, TypeAlias

from throttled_views.errors import StoreUnavailableError
from throttled_views.stores.deciding import Taken
from throttled_views.stores.wire import Script, Spec, encoded_ops, script_of

__all__ = [
    "Asked",
    "Batch",
    "Call",
    "Command",
    "Courier",
    "Finish",
    "Line",
    "NoScriptError",
    "Told",
    "run",
]

_NOT_STORED, _REFUSED_BY_ANOTHER_QUOTA = 2, 3  # verdicts of acquire.lua
_MOST_LIMITS = 32  # of a batch: the server decides them while the next is encoded

Asked: TypeAlias = Sequence[tuple[str, Spec]]
"""The limits of one request: a key and what it costs, for each."""

Told: TypeAlias = Callable[[str, Spec, bool, int, Any, Sequence[int]], Taken]
"""Makes of the answer to one limit what the one who asked gets; as `Finish` else."""

Finish: TypeAlias = Callable[[bool, int, Any, Sequence[Sequence[int]]], Any]
"""
Makes of an answer what the one who asked gets.

Of whether the request was admitted, the store's time in microseconds, what was noted
when its batch was opened (None if a key is held to another quota so far, so that nobody
knows how it goes on), and what the kind of each limit answers.
"""


class Line(Protocol):
    """Something that takes commands to a server, one at a time."""

    async def ask(self, *command: Any) -> Any:
        """
        Send a command and return its reply.

        Raises:
            StoreUnavailableError: There is none, or an error.
            NoScriptError: The server does not know the script.
        """
        ...

    async def hang_up(self) -> None:
        """Close the connection, whatever is on its way; the next command opens one."""
        ...


class NoScriptError(Exception):
    """The server does not know the script that it is to run."""


class Call:
    """
    Something to send, and all that wait for it.

    Attributes:
        deadline: When it is given up, by the clock of the loop.
        task: Sends it, while that is under way.
        is_late: Whether it was given up.
        is_over: Whether all that waited were told something.
    """

    __slots__ = ("deadline", "is_late", "is_over", "task")

    def __init__(self) -> None:
        self.deadline = 0.0
        self.task: asyncio.Task[None] | None = None
        self.is_late = False
        self.is_over = False

    async def send(self, line: Line) -> None:
        """Ask the server, and tell those who wait."""
        raise NotImplementedError

    def is_wanted(self) -> bool:
        """Tell whether anybody still waits."""
        raise NotImplementedError

    def fail(self, error: BaseException) -> None:
        """Tell those who wait that there is no answer."""
        raise NotImplementedError

    def expire(self) -> None:
        """Give up: the deadline is over."""
        self.is_late = True
        if self.task is not None:
            self.task.cancel()
        else:
            self.is_over = True
            self.fail(StoreUnavailableError("No connection was free in time"))


class Command(Call):
    """One command that nothing is added to, such as a refund."""

    __slots__ = ("_ask", "_future")

    def __init__(
        self, ask: Callable[[Line], Awaitable[Any]], future: asyncio.Future[Any]
    ) -> None:
        super().__init__()
        self._ask = ask
        self._future = future

    async def send(self, line: Line) -> None:
        """See `Call.send`."""
        reply = await self._ask(line)
        if not self._future.done():
            self._future.set_result(reply)

    def is_wanted(self) -> bool:
        """See `Call.is_wanted`."""
        return not self._future.done()

    def fail(self, error: BaseException) -> None:
        """See `Call.fail`."""
        _fail(self._future, error)


class Batch(Call):
    """
    Checks that are decided by one call of the script.

    Attributes:
        slot: Where its keys are in a cluster.
        ones: The requests of one limit, and what their answers will be.
        size: Limits in it.
    """

    __slots__ = (
        "_begun",
        "_clock_us",
        "_looks_only",
        "_several",
        "_told",
        "ones",
        "size",
        "slot",
    )

    def __init__(
        self,
        clock_us: Callable[[], int],
        begun: Any,
        told: Told,
        slot: int = 0,
        *,
        looks_only: bool = False,
    ) -> None:
        super().__init__()
        self.slot = slot
        self._begun = begun
        self._told = told
        self._clock_us = clock_us
        self._looks_only = looks_only
        # Nearly all requests have one limit, and are to cost as little as they can.
        self.ones: list[tuple[str, Spec, asyncio.Future[Taken]]] = []
        self._several: list[tuple[Asked, asyncio.Future[Any], Finish]] = []
        self.size = 0

    def add(self, asked: Asked, future: asyncio.Future[Any], finish: Finish) -> None:
        """Add a request; *future* gets what *finish* makes of its answer."""
        self._several.append((asked, future, finish))
        self.size += len(asked)

    def is_wanted(self) -> bool:
        """See `Call.is_wanted`; whoever does not wait any more is left out."""
        self.ones = [each for each in self.ones if not each[2].done()]
        self._several = [each for each in self._several if not each[1].done()]
        return bool(self.ones or self._several)

    async def send(self, line: Line) -> None:
        """See `Call.send`."""
        keys, specs, ops = encoded_ops(
            [(key, spec) for key, spec, _ in self.ones],
            [asked for asked, *_ in self._several],
        )
        script = script_of("acquire", frozenset([spec.kind for spec in specs]))
        raw = b"".join([spec.raw for spec in specs])
        looks = int(self._looks_only)
        reply = await run(line, script, keys, self._clock_us(), looks, raw, ops)
        try:
            self._deliver(reply)
        except (IndexError, TypeError, ValueError) as error:
            await line.hang_up()
            msg = f"The server answers what cannot be read: {reply!r:.80}"
            raise StoreUnavailableError(msg) from error

    def _deliver(self, reply: list[Any]) -> None:
        now_us, at = reply[0], 1
        for key, spec, future in self.ones:
            verdict, start = reply[at], at + 1
            at = start + spec.width
            if future.done():
                continue
            if verdict == _NOT_STORED:
                future.set_exception(_unavailable(reply[-1]))
                continue
            answer, begun = reply[start:at], self._begun
            if verdict == _REFUSED_BY_ANOTHER_QUOTA:
                begun = None
            future.set_result(
                self._told(key, spec, verdict == 1, now_us, begun, answer)
            )
        self._deliver_several(reply, at)

    def _deliver_several(self, reply: list[Any], at: int) -> None:
        now_us = reply[0]
        for asked, future, finish in self._several:
            verdict, at = reply[at], at + 1
            answers: list[Sequence[int]] = []
            for _, spec in asked:
                after = at + spec.width
                answers.append(reply[at:after])
                at = after
            if future.done():
                continue
            if verdict == _NOT_STORED:
                future.set_exception(_unavailable(reply[-1]))
            else:
                known = verdict != _REFUSED_BY_ANOTHER_QUOTA
                begun = self._begun if known else None
                future.set_result(finish(verdict == 1, now_us, begun, answers))

    def fail(self, error: BaseException) -> None:
        """See `Call.fail`."""
        for _, _, future in self.ones:
            _fail(future, error)
        for _, answer, _ in self._several:
            _fail(answer, error)


def _fail(future: asyncio.Future[Any], error: BaseException) -> None:
    """Tell who waits; what is no outage is a mistake of ours, and told as it is."""
    if future.done():
        return
    is_outage = isinstance(error, (StoreUnavailableError, asyncio.CancelledError))
    future.set_exception(_unavailable(error) if is_outage else error)


def _unavailable(reason: object) -> StoreUnavailableError:
    """Return an error of its own for each who waits: a raised one keeps its way."""
    text = reason.decode() if isinstance(reason, bytes) else str(reason)
    error = StoreUnavailableError(text or repr(reason))
    error.__cause__ = reason if isinstance(reason, BaseException) else None
    return error


async def run(
    line: Line, script: Script, keys: Sequence[bytes], *arguments: object
) -> Any:
    """Run *script*; a server that does not know it gets the text, once."""
    try:
        return await line.ask("EVALSHA", script.digest, len(keys), *keys, *arguments)
    except NoScriptError:
        pass
    try:
        return await line.ask("EVAL", script.text, len(keys), *keys, *arguments)
    except NoScriptError as error:
        raise StoreUnavailableError(str(error)) from error


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
        told: Makes of the answer to `check_one` what is told.
    """

    def __init__(  # noqa: PLR0913 - each is a part of it
        self,
        open_line: Callable[[], Line],
        *,
        lines: int,
        timeout: float,
        clock_us: Callable[[], int],
        begin: Callable[[], Any],
        told: Told,
    ) -> None:
        self._free = [open_line() for _ in range(lines)]
        self._lines = tuple(self._free)
        self._timeout = timeout
        self._clock_us = clock_us
        self._begin = begin
        self._told = told
        self._loop = asyncio.get_running_loop()
        self._alarm: asyncio.TimerHandle | None = None
        self._calls: deque[Call] = deque()  # by their deadlines
        self._open: dict[int, Batch] = {}
        self._ready: deque[Call] = deque()
        self._tasks: set[asyncio.Task[None]] = set()

    def check(self, asked: Asked, finish: Finish, slot: int = 0) -> asyncio.Future[Any]:
        """
        Ask for one request; its limits are charged together, or not at all.

        Args:
            asked: The limits of the request.
            finish: Makes of the answer what the future gets.
            slot: Where their keys are in a cluster; a batch is of one slot.
        """
        batch = self._open.get(slot)
        if batch is None or batch.is_late:  # while no line was free
            batch = self._opened(slot)
        future: asyncio.Future[Any] = self._loop.create_future()
        batch.add(asked, future, finish)
        if batch.size >= _MOST_LIMITS:
            del self._open[slot]
        return future

    def check_one(self, key: str, spec: Spec, slot: int = 0) -> asyncio.Future[Taken]:
        """Ask for a request of one limit, as `check` does."""
        batch = self._open.get(slot)
        if batch is None or batch.is_late:
            batch = self._opened(slot)
        future: asyncio.Future[Taken] = asyncio.Future(loop=self._loop)
        batch.ones.append((key, spec, future))
        batch.size += 1
        if batch.size >= _MOST_LIMITS:
            del self._open[slot]
        return future

    def _opened(self, slot: int) -> Batch:
        batch = Batch(self._clock_us, self._begin(), self._told, slot)
        self._open[slot] = batch
        self._submit(batch)
        return batch

    def look(self, asked: Asked, finish: Finish) -> asyncio.Future[Any]:
        """Ask as `check` does, and charge nothing."""
        future: asyncio.Future[Any] = self._loop.create_future()
        batch = Batch(self._clock_us, self._begin(), self._told, looks_only=True)
        batch.add(asked, future, finish)
        self._submit(batch)
        return future

    def command(self, ask: Callable[[Line], Awaitable[Any]]) -> asyncio.Future[Any]:
        """Let *ask* use a line on its own."""
        future: asyncio.Future[Any] = self._loop.create_future()
        self._submit(Command(ask, future))
        return future

    def _submit(self, call: Call) -> None:
        call.deadline = self._loop.time() + self._timeout
        while self._calls and self._calls[0].is_over:
            self._calls.popleft()
        self._calls.append(call)
        if self._alarm is None:  # one for all: a timer for each would cost a heap
            self._alarm = self._alarm_at(call.deadline)
        self._ready.append(call)
        if self._free:
            self._start()

    def _expire(self) -> None:
        """Give up all calls whose deadline is over, and wait for the next one."""
        now = self._loop.time()
        while self._calls and (
            self._calls[0].is_over or self._calls[0].deadline <= now
        ):
            call = self._calls.popleft()
            if not call.is_over:
                call.expire()
        self._alarm = None
        if self._calls:
            self._alarm = self._alarm_at(self._calls[0].deadline)

    def _alarm_at(self, when: float) -> asyncio.TimerHandle:
        # In a context of its own, as the tasks: it may never be without calls.
        return self._loop.call_at(when, self._expire, context=Context())

    def _start(self) -> None:
        # In a context of its own: a request's variables are not to live on in it.
        deliveries = self._deliver_all(self._free.pop())
        self._tasks.add(self._loop.create_task(deliveries, context=Context()))

    async def _deliver_all(self, line: Line) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - for type checkers
        try:
            while self._ready:
                call = self._ready.popleft()
                if isinstance(call, Batch) and self._open.get(call.slot) is call:
                    del self._open[call.slot]
                if self._ready and self._free:
                    self._start()
                if not call.is_late and call.is_wanted():
                    await self._deliver(call, line, task)
                call.is_over = True
        finally:
            self._free.append(line)
            self._tasks.discard(task)

    async def _deliver(self, call: Call, line: Line, task: asyncio.Task[None]) -> None:
        call.task = task
        try:
            await call.send(line)
        except asyncio.CancelledError as error:
            await line.hang_up()
            if not call.is_late:  # the loop ends, or we are closed
                call.fail(error)
                raise
            task.uncancel()
            call.fail(StoreUnavailableError("The deadline passed without an answer"))
        except StoreUnavailableError as error:
            call.fail(error)
        except Exception as error:  # noqa: BLE001 - it is told to those who wait
            await line.hang_up()
            call.fail(error)
        finally:
            call.task = None

    async def aclose(self) -> None:
        """Give up what is under way, and close all lines."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for call in self._ready:
            call.fail(StoreUnavailableError("The store was closed"))
        self._ready.clear()
        self._calls.clear()
        self._open.clear()
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        for line in self._lines:
            with contextlib.suppress(Exception):
                await line.hang_up()
