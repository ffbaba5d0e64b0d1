"""
What a client may do: a quota, its text form, and the names of the algorithms.

A quota is a value. It knows no clock, no client and no store.
"""

from __future__ import annotations

import re
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Self

from throttled_views.errors import InvalidQuotaError, SourceText, shown

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
    from pydantic_core import CoreSchema

__all__ = ["Algorithm", "Quota"]

_MICROSECOND = timedelta(microseconds=1)
_MOST_UNITS = 10**12
_LONGEST = timedelta(days=36_525)  # 100 years
_LONGEST_US = _LONGEST // _MICROSECOND
_MOST_DIGITS = 16  # enough to reach the bounds above and to say so

# Largest first: `str(quota)` uses the first unit that divides the period.
_UNITS_US = {
    "w": 604_800_000_000,
    "d": 86_400_000_000,
    "h": 3_600_000_000,
    "m": 60_000_000,
    "s": 1_000_000,
    "ms": 1_000,
    "us": 1,
}
_SPELLINGS = {
    **{unit: unit for unit in _UNITS_US},
    "week": "w",
    "weeks": "w",
    "day": "d",
    "days": "d",
    "hour": "h",
    "hours": "h",
    "min": "m",
    "minute": "m",
    "minutes": "m",
    "sec": "s",
    "second": "s",
    "seconds": "s",
}
_PERIOD = r"\s*(?:(?P<count>\d+)\s*)?(?P<unit>[a-z]+)"
_TEXT = re.compile(
    rf"\s*(?P<limit>\d+)\s*(?:/|\bper\b){_PERIOD}(?:\s+burst\s+(?P<burst>\d+))?\s*",
    re.ASCII | re.IGNORECASE,
)
_DURATION = re.compile(rf"{_PERIOD}\s*", re.ASCII | re.IGNORECASE)


class Algorithm(StrEnum):
    """
    How a quota is counted.

    ``TOKEN_BUCKET``, ``GCRA`` and ``LEAKY_BUCKET`` (used as a meter) are three ways
    to tell one story: they admit exactly the same requests and share one kernel.

    The others count in windows of one period, and take no quota with a burst.
    ``FIXED_WINDOW`` begins anew with each window, so that twice the limit can pass
    around its edge. ``SLIDING_WINDOW`` lets the window before it count by the part that
    is still covered. ``SLIDING_LOG`` knows the time of each request: it is exact, and a
    key takes memory and time in proportion to its limit.
    """

    TOKEN_BUCKET = "token_bucket"  # noqa: S105 - the name of an algorithm
    GCRA = "gcra"
    LEAKY_BUCKET = "leaky_bucket"
    FIXED_WINDOW = "fixed_window"
    SLIDING_WINDOW = "sliding_window"
    SLIDING_LOG = "sliding_log"


class Quota:
    """
    How many requests a key may make, and how quickly they come back.

    A value: it cannot be changed, and equals any other of the same numbers.

    Args:
        limit: Requests that come back, evenly, in one *period*; 0 refuses everything.
        period: A timedelta, or a number of seconds; to the microsecond.
        burst: Requests a fresh key can make at once; *limit*, unless given.

    Raises:
        InvalidQuotaError: A number is negative, not a number, or out of bounds (10¹²
            requests, 100 years until a spent quota is whole again).
    """

    # Not a dataclass: pydantic-settings would want JSON for one, and not its text.
    __slots__ = ("_burst", "_limit", "_period")

    def __init__(
        self, limit: int, period: timedelta | float, *, burst: int | None = None
    ) -> None:
        given = SourceText(
            f"Quota({shown(limit)}, {shown(period)}"
            + (")" if burst is None else f", burst={shown(burst)})")
        )
        self._limit = _checked_count(given, "limit", limit)
        self._period = _checked_period(given, period)
        if burst is None:
            burst = limit
        elif _checked_count(given, "burst", burst) < 1 and limit > 0:
            raise InvalidQuotaError(given, "a burst below 1 admits nothing")
        elif burst > 0 and limit == 0:
            raise InvalidQuotaError(given, "a limit of 0 never refills a burst")
        self._burst = burst
        if burst * self.period_us > limit * _LONGEST_US:
            raise InvalidQuotaError(given, "it takes over 100 years to refill")

    @property
    def limit(self) -> int:
        """Requests that come back in one period."""
        return self._limit

    @property
    def period(self) -> timedelta:
        """Time in which *limit* requests come back."""
        return self._period

    @property
    def burst(self) -> int:
        """Requests a fresh key can make at once: the capacity."""
        return self._burst

    def _numbers(self) -> tuple[int, timedelta, int]:
        return self._limit, self._period, self._burst

    def __eq__(self, other: object) -> bool:
        """Tell whether *other* is a quota of the same numbers."""
        if not isinstance(other, Quota):
            return NotImplemented
        return self._numbers() == other._numbers()

    def __hash__(self) -> int:
        """Return a hash of the numbers."""
        return hash(self._numbers())

    def __repr__(self) -> str:
        """Return the call that makes it."""
        return f"Quota({self._limit}, {self._period!r}, burst={self._burst})"

    @classmethod
    def per_second(cls, limit: int, *, burst: int | None = None) -> Self:
        """Return *limit* requests per second."""
        return cls(limit, timedelta(seconds=1), burst=burst)

    @classmethod
    def per_minute(cls, limit: int, *, burst: int | None = None) -> Self:
        """Return *limit* requests per minute."""
        return cls(limit, timedelta(minutes=1), burst=burst)

    @classmethod
    def per_hour(cls, limit: int, *, burst: int | None = None) -> Self:
        """Return *limit* requests per hour."""
        return cls(limit, timedelta(hours=1), burst=burst)

    @classmethod
    def per_day(cls, limit: int, *, burst: int | None = None) -> Self:
        """Return *limit* requests per day of 24 hours."""
        return cls(limit, timedelta(days=1), burst=burst)

    @classmethod
    def per_week(cls, limit: int, *, burst: int | None = None) -> Self:
        """Return *limit* requests per week of 7 days."""
        return cls(limit, timedelta(weeks=1), burst=burst)

    @classmethod
    def parse(cls, text: str) -> Self:
        """
        Read a quota from its text form.

        The text is ``<limit>/<period>`` or ``<limit> per <period>``, a period is a
        unit with an optional number before it, and ``burst <n>`` may follow:
        ``"100/m"``, ``"5 per 10 minutes"``, ``"10/s burst 20"``. Units are ``us``,
        ``ms``, ``s``, ``sec``, ``second(s)``, ``m``, ``min``, ``minute(s)``, ``h``,
        ``hour(s)``, ``d``, ``day(s)``, ``w`` and ``week(s)``.

        Raises:
            InvalidQuotaError: The text is not of that form, or its numbers are out
                of bounds.
        """
        if ";" in _checked_text(text):
            raise InvalidQuotaError(text, "it is a list, and one quota is wanted here")
        if (found := _TEXT.fullmatch(text)) is None:
            raise InvalidQuotaError(text, "it is not of the form '<limit>/<period>'")
        if (unit := _SPELLINGS.get(found["unit"].lower())) is None:
            raise InvalidQuotaError(text, f"the unit {shown(found['unit'])} is unknown")
        numbers = [found["limit"], found["count"] or "1", found["burst"] or "0"]
        if any(len(digits) > _MOST_DIGITS for digits in numbers):
            raise InvalidQuotaError(text, f"a number has over {_MOST_DIGITS} digits")
        limit, count, burst = map(int, numbers)
        try:
            period = timedelta(microseconds=count * _UNITS_US[unit])
            return cls(limit, period, burst=burst if found["burst"] else None)
        except OverflowError:
            reason = "its period is over 100 years"
        except InvalidQuotaError as error:
            reason = error.reason
        raise InvalidQuotaError(text, reason)

    @property
    def period_us(self) -> int:
        """The period in microseconds."""
        return self.period // _MICROSECOND

    def __str__(self) -> str:
        """Return the shortest text that `parse` reads back as this quota."""
        period_us = self.period_us
        unit, unit_us = next(
            (name, us) for name, us in _UNITS_US.items() if period_us % us == 0
        )
        count = period_us // unit_us
        burst = "" if self.burst == self.limit else f" burst {self.burst}"
        return f"{self.limit}/{'' if count == 1 else count}{unit}{burst}"

    @classmethod
    def __get_pydantic_core_schema__(
        cls, _source: object, _handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Validate from text and serialise to it, in models and settings."""
        from pydantic_core import core_schema  # noqa: PLC0415 - only with Pydantic

        from_text = core_schema.no_info_after_validator_function(
            cls.parse, core_schema.str_schema()
        )
        return core_schema.json_or_python_schema(
            json_schema=from_text,
            python_schema=core_schema.union_schema(
                [core_schema.is_instance_schema(cls), from_text]
            ),
            serialization=core_schema.to_string_ser_schema(),
        )

    @classmethod
    def __get_pydantic_json_schema__(
        cls, _schema: CoreSchema, _handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Describe a quota as text."""
        return {"type": "string", "examples": ["100/m", "10/s burst 20"]}


def length_us(text: str) -> int | None:
    """
    Return the microseconds that *text* is, in the units of quotas; None if it is none.

    That is a unit with an optional number before it, such as ``"30s"``, and as long as
    the period of a quota may be.
    """
    if (found := _DURATION.fullmatch(text)) is None:
        return None
    unit, digits = _SPELLINGS.get(found["unit"].lower()), found["count"] or "1"
    if unit is None or len(digits) > _MOST_DIGITS:
        return None
    found_us = int(digits) * _UNITS_US[unit]
    return found_us if 0 < found_us <= _LONGEST_US else None


def _checked_text(text: object) -> str:
    if not isinstance(text, str):
        raise InvalidQuotaError(text, "it is not text")
    return text


def _checked_count(given: str, name: str, count: object) -> int:
    """Return *count* if it is a whole number of requests within the bounds."""
    if not isinstance(count, int) or isinstance(count, bool):
        raise InvalidQuotaError(given, f"the {name} is not a whole number")
    if count < 0:
        raise InvalidQuotaError(given, f"the {name} is negative")
    if count > _MOST_UNITS:
        raise InvalidQuotaError(given, f"the {name} is above 10**12")
    return count


def _checked_period(given: str, period: object) -> timedelta:
    """Return *period* as a timedelta between one microsecond and 100 years."""
    if isinstance(period, bool) or not isinstance(period, (timedelta, int, float)):
        raise InvalidQuotaError(given, "the period is not a timedelta or seconds")
    if not isinstance(period, timedelta):
        if period != period:  # noqa: PLR0124 - only NaN differs from itself
            raise InvalidQuotaError(given, "the period is not a number")
        if period < 0:
            raise InvalidQuotaError(given, "the period is negative")
        try:
            period = timedelta(seconds=period)
        except OverflowError:
            raise InvalidQuotaError(given, "its period is over 100 years") from None
    if period < timedelta(0):
        raise InvalidQuotaError(given, "the period is negative")
    if period < _MICROSECOND:
        raise InvalidQuotaError(given, "its period is zero")
    if period > _LONGEST:
        raise InvalidQuotaError(given, "its period is over 100 years")
    return period
