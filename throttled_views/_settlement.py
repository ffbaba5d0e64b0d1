"""
What is given back once it is known how a request ended: `Limit.refund_when`.

A request is settled once, by whatever comes first: its response starts, its handler
raises what nobody handles, it is cancelled, or it ends without a response.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Coroutine, Sequence
from inspect import iscoroutine
from typing import Any, Final, TypeVar, cast

from throttled_views._answers import Answer, give_back
from throttled_views.context import Outcome
from throttled_views.errors import shown

__all__ = ["ERROR", "hold", "settle", "settle_soon", "settled"]

_logger = logging.getLogger("throttled_views")
_T = TypeVar("_T")

ERROR: Final = 500  # RFC 9110, section 15.6.1: what a server answers then
_HUNG_UP: Final = 499  # of nginx: the client closed the request

# Held until they are done; an event loop does not hold its tasks.
_tasks: set[asyncio.Task[Any]] = set()


async def settled(serving: Awaitable[None], outcome: Outcome) -> None:
    """Wait for *serving* a request, and settle it if no response was started."""
    try:
        await serving
    except Exception:
        await settle(outcome, ERROR)
        raise
    except BaseException:
        settle_soon(outcome)
        raise
    if outcome.open:
        await settle(outcome, ERROR)


async def settle(outcome: Outcome, status: int) -> None:
    """Give back what a response of *status* does not cost; the first call counts."""
    answers, outcome.open = outcome.open, []
    refunded = [each for each in answers if _is_refunded(each, status)]
    if refunded:  # to the end, also if the client hangs up meanwhile
        await asyncio.shield(hold(_given_back(refunded)))


def settle_soon(outcome: Outcome) -> None:
    """Settle what was cancelled, in a task: who is cancelled cannot wait for that."""
    if outcome.open:
        _ = hold(settle(outcome, _HUNG_UP))


def hold(work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
    """Do *work* in a task, and hold that until it is done."""
    task = asyncio.ensure_future(work)
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)
    return task


async def _given_back(answers: Sequence[Answer]) -> None:
    try:
        await give_back(answers)
    except Exception:
        _logger.exception("A charge could not be given back, and stays charged")


def _is_refunded(answer: Answer, status: int) -> bool:
    refund_when = answer.rule.limit.refund_when
    if refund_when is None or not answer.result.receipts:
        return False
    try:
        is_refunded = cast("object", refund_when(status))
    except Exception:
        _logger.exception("%r failed; the request stays charged", refund_when)
        return False
    if isinstance(is_refunded, bool):
        return is_refunded
    if iscoroutine(is_refunded):
        is_refunded.close()
    _logger.error(
        "%r returned %s, which is neither True nor False; the request stays charged",
        refund_when,
        shown(is_refunded),
    )
    return False
