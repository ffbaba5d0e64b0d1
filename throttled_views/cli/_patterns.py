"""Patterns in which requests arrive, as a person writes them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

from throttled_views.cli._mistakes import CommandError
from throttled_views.quotas import Quota, length_us
from throttled_views.simulation import Arrival, poisson, regular

__all__ = ["Pattern", "duration_us"]

_MOST = 5_000_000  # arrivals of a pattern, which are in memory all together


@dataclass(frozen=True, slots=True)
class Pattern:
    """
    How requests arrive.

    Attributes:
        every_us: Microseconds between them, where they come regularly.
        size: How many come at once then.
        rate: How many come at random; None if they come regularly.
        for_us: Microseconds that it goes on for.
        seed: What makes chance repeatable.
    """

    every_us: int
    size: int
    rate: Quota | None
    for_us: int
    seed: int

    @classmethod
    def of(
        cls,
        every: str | None,
        burst: int | None,
        poisson: str | None,
        duration: str,
        seed: int,
    ) -> Pattern | None:
        """
        Return the pattern that a person wrote; None if that is none.

        Raises:
            CommandError: They are two, or a text is not what it is to be.
        """
        if every is None and burst is None and poisson is None:
            return None
        if poisson is not None and (every is not None or burst is not None):
            msg = "--poisson comes at random, --every and --burst do not. Give one"
            raise CommandError(msg)
        for_us = duration_us(duration)
        return cls(
            # A burst that is not said to come again comes once.
            for_us if every is None else duration_us(every),
            burst or 1,
            None if poisson is None else Quota.parse(poisson),
            for_us,
            seed,
        )

    def arrivals(self) -> list[Arrival]:
        """
        Return what arrives.

        Raises:
            CommandError: Nothing does, or too much.
        """
        if self.rate is None:
            pattern = regular(self.every_us, self.for_us, self.size)
        else:
            pattern = poisson(self.rate, self.for_us, seed=self.seed)
        arrivals = [*islice(pattern, _MOST + 1)]
        if not arrivals:
            msg = "Nothing arrives in that time. Write a longer --for"
            raise CommandError(msg)
        if len(arrivals) > _MOST:
            msg = f"These are over {_MOST:,} arrivals. Write a shorter --for"
            raise CommandError(msg)
        return arrivals


def duration_us(text: str) -> int:
    """
    Return the length of time that *text* is, in microseconds.

    Raises:
        CommandError: It is none.
    """
    if (found_us := length_us(text)) is None:
        msg = f"{text!r} is no length of time. Write for example 100ms, 30s or 10m"
        raise CommandError(msg)
    return found_us
