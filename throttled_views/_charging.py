"""What a limiter decides on a request by its store, and tells its hooks."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from time import perf_counter

from throttled_views._answers import Answer
from throttled_views._rules import Rule
from throttled_views.context import Outcome
from throttled_views.errors import StoreUnavailableError
from throttled_views.headers import Told
from throttled_views.hooks import CheckEvent, CheckOutcome, CheckPhase
from throttled_views.outcome import Machinery, RateLimitUnavailableError
from throttled_views.results import Charge, RateLimitResult, decision_of

__all__ = ["acquired", "observed"]

_logger = logging.getLogger("throttled_views")


async def acquired(
    machinery: Machinery, charged: Sequence[tuple[Rule, Charge]], outcome: Outcome
) -> bool:
    """Charge all of *charged*, or none; tell whether the request is refused."""
    if not charged:
        return False
    for _, charge in charged:
        outcome.note(machinery.store, charge.key, charge.cost)
    began = perf_counter()
    try:
        results = await machinery.failover.acquire([charge for _, charge in charged])
    except StoreUnavailableError as error:
        for rule, charge in charged:
            _tell(machinery, rule, charge, outcome.phase, "unavailable", began)
        problem_details = machinery.renderer.problem_details
        raise RateLimitUnavailableError(problem_details=problem_details) from error
    is_refused = any(result.limited for result in results)
    otherwise: CheckOutcome = "spared" if is_refused else "admitted"
    for result, (rule, charge) in zip(results, charged, strict=True):
        named = replace(result, name=rule.name)
        name = "refused" if result.limited else otherwise
        _tell(machinery, rule, charge, outcome.phase, name, began, named)
        seen = Told(decision_of(result), rule.name, charge.quota)
        make_result = partial(_given, named)
        answer = Answer(seen, rule, machinery, outcome.phase, make_result)
        outcome.add_answer(answer)
    return is_refused


async def observed(
    machinery: Machinery, rule: Rule, charge: Charge, outcome: Outcome
) -> None:
    """Charge a limit in shadow, and tell what it would have done."""
    began, phase = perf_counter(), outcome.phase
    try:
        [result] = await machinery.failover.acquire([charge])
    except StoreUnavailableError:
        _tell(machinery, rule, charge, phase, "unavailable", began)
        return
    named = replace(result, name=rule.name)
    if not result.limited:
        _tell(machinery, rule, charge, phase, "admitted", began, named)
        seen = Told(decision_of(result), rule.name, charge.quota)
        outcome.observe(Answer(seen, rule, machinery, phase, partial(_given, named)))
        return
    _tell(machinery, rule, charge, phase, "would_refuse", began, named)
    _logger.info(
        "In shadow: %s (%s) would have refused a request", rule.route, rule.name
    )


def _given(result: RateLimitResult) -> RateLimitResult:
    return result


def _tell(  # noqa: PLR0913, PLR0917 - each is a part of the event
    machinery: Machinery,
    rule: Rule,
    charge: Charge,
    phase: CheckPhase,
    name: CheckOutcome,
    began: float,
    result: RateLimitResult | None = None,
) -> None:
    """Tell hooks what came out for *rule*; that takes nothing where there are none."""
    if not machinery.audience:
        return
    event = CheckEvent(
        rule.observed,
        phase,
        name,
        charge.cost,
        perf_counter() - began,
        0.0 if result is None else result.delay,
        None if result is None else partial(_given, result),
    )
    machinery.audience.on_check(event)
