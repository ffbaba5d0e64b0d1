"""
Which routes take the requests of later ones, so that these are not reached.

Applications ask their routes in order, and the first that matches serves. Whether an
earlier one matches all requests to a later one, of a method at least, is found by paths
that stand for all of those.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from http import HTTPMethod

from starlette.routing import Mount

from throttled_views._found import Found
from throttled_views._methods import WEBSOCKET
from throttled_views._templates import examples_of, takes_all

__all__ = ["captor_of", "captured_methods"]

_HTTP = frozenset(HTTPMethod)


def captor_of(found: Found, earlier_ones: Iterable[Found]) -> Found | None:
    """Return the first of *earlier_ones* that takes requests to *found*, if any."""
    paths = [*_paths_to(found)]
    for earlier in earlier_ones:
        if (
            _takes(earlier, paths)
            and captured_methods(found, earlier)
            and not _serves_the_same(earlier, found)
        ):
            return earlier
    return None


def captured_methods(found: Found, earlier: Found) -> frozenset[str]:
    """Return the methods of *found* that *earlier* would serve."""
    methods = _served_by(found)
    both = methods & _served_by(earlier)
    # What a mount, or a class, serves of all methods is not known.
    return both if found.methods or both == methods else frozenset()


def _served_by(found: Found) -> frozenset[str]:
    if isinstance(found.route, Mount):
        return _HTTP | {WEBSOCKET}
    return frozenset(found.methods) or _HTTP


def _takes(earlier: Found, paths: list[str]) -> bool:
    pattern: re.Pattern[str] | None = getattr(earlier.here, "path_regex", None)
    if pattern is None or not takes_all(pattern, paths):
        return False
    # Another class may look at more of a request than its path and its method.
    asked: object = getattr(earlier.route, "matches", None)
    return getattr(asked, "__module__", "") in {"fastapi.routing", "starlette.routing"}


def _paths_to(found: Found) -> Iterator[str]:
    """Yield paths that stand for all to *found*; none if that cannot be told."""
    template: str | None = getattr(found.here, "path_format", None)
    if template is None:
        return
    yield from examples_of(template, found.here.param_convertors)


def _serves_the_same(earlier: Found, found: Found) -> bool:
    one, other = earlier.declaration, found.declaration
    return (one.owner, one.handler) == (other.owner, other.handler)
