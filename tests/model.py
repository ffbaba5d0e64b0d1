"""What buckets should answer, in fractions: slow, obvious and exact."""

from fractions import Fraction
from math import ceil, floor

from throttled_views import Quota
from throttled_views.results import Decision


class BucketModel:
    """
    A token bucket: how many tokens it holds, and when that was so.

    It shares no line and no idea with the package, which knows no level.
    """

    def __init__(self, quota: Quota, now_us: int) -> None:
        self.quota = quota
        self.level = Fraction(quota.burst)
        self.now_us = now_us

    @property
    def per_us(self) -> Fraction:
        """Tokens that come back in a microsecond."""
        return Fraction(self.quota.limit, self.quota.period_us)

    def at(self, now_us: int) -> None:
        """Let time pass, or step back: no level is above full or below empty."""
        level = self.level + (now_us - self.now_us) * self.per_us
        self.level = min(max(level, Fraction(0)), Fraction(self.quota.burst))
        self.now_us = now_us

    def hold_to(self, quota: Quota) -> None:
        """Change the quota: whole tokens stay, and a full bucket is full again."""
        is_full, before = self.level == self.quota.burst, self.per_us
        self.quota = quota
        level = self.level if before == self.per_us else Fraction(floor(self.level))
        self.level = (
            Fraction(quota.burst) if is_full else min(level, Fraction(quota.burst))
        )

    def take(self, cost: int) -> Decision:
        """Take *cost* tokens, or none if there are not so many."""
        limited = cost > self.level or self.quota.limit == 0
        if not limited:
            self.level -= cost
        return Decision(
            limited,
            self.quota.burst,
            floor(self.level),
            self._wait_us(self.quota.burst) or 0,
            self._wait_us(cost) if limited else 0,
            self.now_us,
        )

    def give_back(self, tokens: int) -> None:
        """Put *tokens* back; what is above full is lost."""
        self.level = min(self.level + tokens, Fraction(self.quota.burst))

    def _wait_us(self, tokens: int) -> int | None:
        if tokens > self.quota.burst or self.quota.limit == 0:
            return None
        return ceil((tokens - self.level) / self.per_us)
