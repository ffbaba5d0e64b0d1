"""The methods that a handler serves, as its keys have them."""

from __future__ import annotations

from collections.abc import Iterable

from starlette.types import Scope

__all__ = ["WEBSOCKET", "joined", "methods_of"]

WEBSOCKET = "WEBSOCKET"
"""What stands for the methods of a handler that serves sockets."""

_ANY = "ANY"
"""What stands for the methods of a route that serves all there are."""


def methods_of(scope: Scope) -> str:
    """Return the methods of the route that serves *scope*, as keys have them."""
    if scope["type"] == "websocket":
        return WEBSOCKET
    methods = getattr(scope.get("route"), "methods", None)
    return joined(methods) if methods else _ANY


def joined(methods: Iterable[str]) -> str:
    """
    Return *methods* as keys have them.

    HEAD alone is GET, so that a function that is registered for one after the other has
    no second budget.
    """
    served = sorted(methods)
    return "+".join(["GET"] if served == ["HEAD"] else served)
