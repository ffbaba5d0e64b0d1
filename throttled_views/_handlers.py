"""Views, as a router sees them: what a class says, and the options of its routes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Self

from throttled_views._binding import RouteCall
from throttled_views._methods import WEBSOCKET, joined
from throttled_views.errors import RegistrationError
from throttled_views.limits import KeyFunc, Limit
from throttled_views.quotas import Algorithm
from throttled_views.throttled import Throttled

__all__ = ["Definition", "Handler", "options_of"]

_LISTS = ("tags", "dependencies", "callbacks")
_OF_ROUTES = {
    "default_response_class": "response_class",
    "deprecated": "deprecated",
    "include_in_schema": "include_in_schema",
    "generate_unique_id_function": "generate_unique_id_function",
    "max_body_size": "max_body_size",
    "form_limits": "form_limits",
}


class Handler(NamedTuple):
    """
    A handler of a view.

    Attributes:
        name: Name of the method.
        calls: The routes that lead to it.
        throttled: Its limits; None leaves them to the limiter's default.
        key_func: What the view says where a limit does not.
        using: The same.
        bucket: The same.
    """

    name: str
    calls: tuple[RouteCall, ...]
    throttled: Throttled | None
    key_func: KeyFunc | None
    using: Algorithm | None
    bucket: str | None

    @property
    def is_socket(self) -> bool:
        """Whether it serves WebSockets."""
        return any(call.verb == "websocket" for call in self.calls)

    @property
    def methods(self) -> str:
        """The methods it serves, as keys have them."""
        if self.is_socket:
            return WEBSOCKET
        return joined({method for call in self.calls for method in call.methods})

    def completed(self, limits: Sequence[Limit]) -> tuple[Limit, ...]:
        """Return *limits* with what the view says where they do not."""
        return tuple(
            replace(
                limit,
                key_func=limit.key_func or self.key_func,
                using=limit.using or self.using,
                bucket=limit.bucket or self.bucket,
            )
            for limit in limits
        )

    def with_limits(self, limits: Sequence[Limit]) -> Self:
        """Return this handler, limited by *limits*."""
        return self._replace(throttled=Throttled.declared(limits))


class Definition(NamedTuple):
    """
    A view, as it was defined.

    Attributes:
        path: Path, relative to the router's.
        options: Tags and dependencies of its routes.
        handlers: Its handlers, in the order of their definition.
    """

    path: str
    options: Mapping[str, Sequence[object]]
    handlers: Sequence[Handler]


def options_of(call: RouteCall, outer: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the options of *call*, with those that hold for a whole view or router."""
    options = {name: value for name, value in call.kwargs.items() if name != "path"}
    for name, value in (
        (name, value) for each in outer for name, value in each.items()
    ):
        if call.verb == "websocket" and name != "dependencies":
            continue
        if name in _LISTS:
            inner = [each[name] for each in outer if each.get(name)]
            inner.append(call.kwargs.get(name) or ())
            options[name] = [each for some in inner for each in some]
        elif name == "responses":
            options[name] = {**value, **(call.kwargs.get(name) or {})}
        elif name in _OF_ROUTES:
            options.setdefault(_OF_ROUTES[name], value)
        else:
            raise RegistrationError(
                "add_view",
                f"{name!r} is no option of the routes of a view",
                "Give it to the ThrottledRouter",
            )
    return options
