"""
What limits that are counted in one place have to agree on: the quota, and the way.

Otherwise each would be held to the count of another.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from throttled_views._rules import MOST_TEMPLATES, Rule
from throttled_views.algorithms.kernels import counts_apart
from throttled_views.errors import RegistrationError
from throttled_views.limits import Limit, slots_of
from throttled_views.quotas import Algorithm, Quota

__all__ = ["Agreements"]


class _Counted(NamedTuple):
    """What is held to a quota, and how that is counted."""

    quota: Quota
    using: Algorithm


class Agreements:
    """The quotas of buckets and templates, as the first limit of each has them."""

    def __init__(self) -> None:
        self._buckets: dict[tuple[str, str], _Counted] = {}
        self._places: dict[tuple[str, str], _Counted] = {}

    def check_buckets(self, limits: Sequence[Limit], using: Algorithm) -> None:
        """Refuse *limits* if one is of another quota than its bucket."""
        for limit, slot in zip(limits, slots_of(limits), strict=True):
            self.check_bucket(slot, limit, using)

    def check_bucket(self, slot: str, limit: Limit, using: Algorithm) -> None:
        """
        Refuse *limit* if it is of another quota than its bucket.

        Args:
            slot: Its place in the bucket.
            limit: The limit.
            using: How it is counted, where it does not say so itself.
        """
        if limit.bucket is None or not isinstance(limit.quota, Quota):
            return
        counted = _Counted(limit.quota, limit.using or using)
        first = self._buckets.setdefault((limit.bucket, slot), counted)
        _check_equal(first, counted, f"bucket {limit.bucket!r}")

    def check_place(self, rule: Rule) -> None:
        """Refuse another quota for the same template, which hosts may have alike."""
        if not isinstance(rule.limit.quota, Quota):
            return
        if len(self._places) >= MOST_TEMPLATES:  # of a root_path that varies
            self._places.clear()
        counted = _Counted(rule.limit.quota, rule.using)
        first = self._places.setdefault((rule.head, rule.tail), counted)
        _check_equal(first, counted, f"route_key=by_template at {rule.route!r}")


def _check_equal(first: _Counted, other: _Counted, place: str) -> None:
    if first.quota != other.quota or counts_apart(first.using, other.using):
        raise RegistrationError(
            place,
            f"it is held to {first.quota} by {first.using} in one place and to "
            f"{other.quota} by {other.using} in another",
            "Give both the same quota, or each a bucket of its own",
        )
