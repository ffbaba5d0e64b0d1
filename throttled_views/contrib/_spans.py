"""What a decision leaves on the span of its request."""

from __future__ import annotations

from opentelemetry.trace import get_current_span

from throttled_views.contrib._tallies import NAMESPACE, Attributes
from throttled_views.hooks import CheckEvent


def note(event: CheckEvent, attributes: Attributes) -> None:
    """Add an event to the span of the request, if there is one that is recorded."""
    span = get_current_span()
    if span.is_recording():
        span.add_event(f"{NAMESPACE}.decision", {**attributes, **_answer_of(event)})


def _answer_of(event: CheckEvent) -> Attributes:
    """Return what the client is told; nothing if the store could not be asked."""
    if (result := event.result) is None:
        return {}
    state = result.state
    answer = {
        f"{NAMESPACE}.limit.capacity": state.limit,
        f"{NAMESPACE}.remaining": state.remaining,
    }
    if state.retry_after is None:
        return answer
    return {**answer, f"{NAMESPACE}.retry_after": state.retry_after}
