"""What is admitted, in letters: A for what passes, D for what is denied."""

from collections.abc import Sequence
from fractions import Fraction

from tests.clock import ManualClock
from throttled_views import Quota, RateLimitHeaderPolicy, RateLimitResult, Throttled
from throttled_views.headers import Told, renderer_of
from throttled_views.results import decision_of


def letter(result: RateLimitResult) -> str:
    """Return A for an admitted request, D for a denied one."""
    return "D" if result.limited else "A"


async def answers(
    throttled: Throttled, clock: ManualClock, instants: Sequence[float | Fraction]
) -> str:
    """Send a request at each of *instants*, in seconds, and return their letters."""
    letters = ""
    for instant in instants:
        clock.set(float(instant))
        letters += letter(await throttled.limit("alice"))
    return letters


async def burst(throttled: Throttled, count: int, key: str = "alice") -> str:
    """Send *count* requests at once, and return their letters."""
    return "".join([letter(await throttled.limit(key)) for _ in range(count)])


async def remaining(throttled: Throttled, key: str = "alice") -> int:
    """Return how many requests *key* could make now."""
    return (await throttled.peek(key)).state.remaining


def retry_after(result: RateLimitResult) -> str | None:
    """Return the Retry-After that a client would get."""
    told = Told(decision_of(result), result.name, Quota.per_hour(1))
    fields = renderer_of(RateLimitHeaderPolicy()).render([told])
    value = dict(fields).get(b"retry-after")
    return None if value is None else value.decode()
