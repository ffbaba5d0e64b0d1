"""What buckets should answer, in fractions: slow, obvious and exact."""

from fractions import Fraction
from math import ceil, floor

from throttled_views import Quota
from throttled_views.results import Decision


class BucketModel:
    """
    A token bucket: how many tokens it holds, and when that was so.

    It shares no line and no idea with the package, which knows no level. Where requests
    wait for their turns, it holds less than nothing.
    """

    def __init__(self, quota: Quota, now_us: int, delay_us: int = 0) -> None:
        self.quota = quota
        self.delay_us = delay_us
        self.level = Fraction(quota.burst)
        self.now_us = now_us

    @property
    def per_us(self) -> Fraction:
        """Tokens that come back in a microsecond."""
        return Fraction(self.quota.limit, self.quota.period_us)

    @property
    def lowest(self) -> Fraction:
        """The level at which all turns are given."""
        return -self.delay_us * self.per_us

    def at(self, now_us: int) -> None:
        """Let time pass, or step back: no level is above full or below the lowest."""
        level = self.level + (now_us - self.now_us) * self.per_us
        self.level = min(max(level, self.lowest), Fraction(self.quota.burst))
        self.now_us = now_us

    def hold_to(self, quota: Quota, delay_us: int = 0) -> None:
        """Change the quota: whole tokens stay, and a full bucket is full again."""
        is_full, before = self.level == self.quota.burst, self.per_us
        self.quota, self.delay_us = quota, delay_us
        level = self.level if before == self.per_us else Fraction(floor(self.level))
        level = max(level, self.lowest)
        self.level = (
            Fraction(quota.burst) if is_full else min(level, Fraction(quota.burst))
        )

    def take(self, cost: int) -> Decision:
        """Take *cost* tokens, or none if there will not be so many soon enough."""
        limited = (
            cost > self.level - self.lowest
            or cost > self.quota.burst
            or self.quota.limit == 0
        )
        if not limited:
            self.level -= cost
        return Decision(
            limited,
            self.quota.burst,
            max(0, floor(self.level)),
            self._wait_us(Fraction(self.quota.burst)) or 0,
            self._retry_us(cost) if limited else 0,
            self.now_us,
            0 if limited else max(0, self._wait_us(Fraction(0)) or 0),
        )

    def give_back(self, tokens: int) -> None:
        """Put *tokens* back; what is above full is lost, and all while others wait."""
        if self.level < 0:
            return
        self.level = min(self.level + tokens, Fraction(self.quota.burst))

    def _wait_us(self, level: Fraction) -> int | None:
        if self.quota.limit == 0:
            return None
        return ceil((level - self.level) / self.per_us)

    def _retry_us(self, cost: int) -> int | None:
        if cost > self.quota.burst:
            return None
        return self._wait_us(cost + self.lowest)
