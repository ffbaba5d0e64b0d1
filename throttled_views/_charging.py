"""What a limiter decides on a request by its store, and tells its hooks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from time import perf_counter

from throttled_views._answers import Answer
from throttled_views._rules import Rule
from throttled_views._scopes import Machinery
from throttled_views._settlement import hold, settle_soon
from throttled_views.context import Outcome
from throttled_views.errors import StoreUnavailableError
from throttled_views.headers import Told
from throttled_views.hooks import CheckedLimit, CheckOutcome, CheckPhase
from throttled_views.outcome import RateLimitUnavailableError
from throttled_views.results import Charge, RateLimitResult, decision_of

__all__ = ["acquired", "charge_in_shadow"]

_logger = logging.getLogger("throttled_views")


async def acquired(
    machinery: Machinery, charged: Sequence[tuple[Rule, Charge]], outcome: Outcome
) -> bool:
    """Charge all of *charged*, or none; tell whether the request is refused."""
    if not charged:
        return False
    deciding = _decided(machinery, charged, outcome)
    if not any(charge.refundable for _, charge in charged):
        return await deciding
    # To the end: what is charged to a client that hangs up meanwhile is settled.
    task = hold(deciding)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.add_done_callback(partial(_settle_late, outcome))
        raise


def _settle_late(outcome: Outcome, task: asyncio.Task[bool]) -> None:
    if not task.cancelled() and task.exception() is None:
        settle_soon(outcome)


async def _decided(
    machinery: Machinery, charged: Sequence[tuple[Rule, Charge]], outcome: Outcome
) -> bool:
    for _, charge in charged:
        outcome.note_charge(machinery.store, charge.key, charge.cost)
    began, phase, tell = perf_counter(), outcome.phase, machinery.audience.checked
    try:
        results = await machinery.failover.acquire([charge for _, charge in charged])
    except StoreUnavailableError as error:
        for rule, charge in charged:
            tell(rule.label, phase, "unavailable", charge, began)
        problem_details = machinery.renderer.problem_details
        raise RateLimitUnavailableError(problem_details=problem_details) from error
    is_refused = any(result.limited for result in results)
    otherwise: CheckOutcome = "spared" if is_refused else "admitted"
    for result, (rule, charge) in zip(results, charged, strict=True):
        named = replace(result, name=rule.name)
        name = "refused" if result.limited else otherwise
        tell(rule.label, phase, name, charge, began, named)
        outcome.add_answer(_answer(machinery, rule, charge, outcome, named))
        if result.delay:
            turn_at = asyncio.get_running_loop().time() + result.delay
            outcome.turn_at = max(outcome.turn_at, turn_at)
    return is_refused


async def charge_in_shadow(
    machinery: Machinery, rule: Rule, charge: Charge, outcome: Outcome
) -> None:
    """Charge what is only observed, and tell what it would have done."""
    began, tell = perf_counter(), machinery.audience.checked
    told: tuple[CheckedLimit, CheckPhase] = rule.label, outcome.phase
    of = charge, began
    try:
        [result] = await machinery.failover.acquire([charge])
    except StoreUnavailableError:
        tell(*told, "unavailable", *of)
        return
    named = replace(result, name=rule.name)
    if not result.limited:
        tell(*told, "admitted", *of, named)
        outcome.note_charge(machinery.store, charge.key, charge.cost)
        outcome.add_shadowed(_answer(machinery, rule, charge, outcome, named))
        return
    tell(*told, "would_refuse", *of, named)
    _logger.info(
        "In shadow: %s (%s) would have refused a request", rule.route, rule.name
    )


def _answer(
    machinery: Machinery,
    rule: Rule,
    charge: Charge,
    outcome: Outcome,
    result: RateLimitResult,
) -> Answer:
    told = Told(decision_of(result), rule.name, charge.quota)
    return Answer(told, rule, machinery, outcome.phase, lambda: result)
