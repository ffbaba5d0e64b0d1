"""
What makes a view class well-formed: the checks behind `ThrottledViewMeta`.

Whatever could let a request through unlimited is refused here, when the class statement
runs, with what to write instead.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from functools import partial
from typing import Any

from throttled_views._binding import (
    RouteCall,
    is_async,
    is_same,
    name_of,
    not_async,
    where,
)
from throttled_views._functions import check_connection, check_functions
from throttled_views._handlers import Definition, Handler
from throttled_views._marks import (
    LIMITS_MARK,
    ROUTES_MARK,
    forget_marked,
    marked_in,
)
from throttled_views._methods import WEBSOCKET
from throttled_views._settings import check_settings, noted, setting_of
from throttled_views.errors import ViewDefinitionError
from throttled_views.limits import Limit, limits_of

__all__ = ["VERBS", "ClassBody", "definition_of"]

VERBS = ("get", "post", "put", "patch", "delete", "head", "options", "trace")

_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class ClassBody(dict[str, object]):
    """The namespace of a class statement; a handler written twice is an error in it."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    def __setitem__(self, name: str, value: object) -> None:
        if name == "__qualname__":
            forget_marked(f"{self.get('__module__')}.{value}")
        earlier = self.get(name)
        if _is_handler(name, earlier) and not is_same(earlier, value):
            raise ViewDefinitionError(
                f"{self.get('__qualname__', self._name)}.{name}{where(value)}",
                f"the handler is defined twice, first{where(earlier)}",
                "Rename one, and give it its route: @route.get('/…')",
            )
        super().__setitem__(name, value)


def definition_of(view: type) -> Definition:
    """
    Return what *view* declares.

    Raises:
        ConfigurationError: It could not be limited as declared.
    """
    check_settings(view)
    _check_no_mark_is_lost(view)
    definition = Definition(
        path=setting_of(view, "path") or "",
        options={
            "tags": tuple(setting_of(view, "tags") or ()),
            "dependencies": tuple(setting_of(view, "dependencies") or ()),
        },
        handlers=tuple(_handlers(view)),
    )
    _check_slash(view, definition)
    return definition


def _handlers(view: type) -> Iterable[Handler]:
    """Yield the handlers of *view*, in the order they were first defined in."""
    served: dict[tuple[str, str], str] = {}
    names = dict.fromkeys(
        name for base in reversed(view.__mro__) for name in vars(base)
    )
    for name in names:
        raw = inspect.getattr_static(view, name)
        _check_override(view, name, raw)
        calls = _calls(name, raw)
        subject = f"{name_of(view)}.{name}"
        if not calls:
            _check_no_limit(raw, subject)
            continue
        _check_method(view, name, raw, subject)
        _claim(calls, name, subject + where(raw), served)
        with noted(f"It is declared for {subject}{where(raw)}"):
            handler = _handler(view, name, raw, calls)
        yield handler


def _claim(
    calls: Iterable[RouteCall],
    name: str,
    subject: str,
    served: dict[tuple[str, str], str],
) -> None:
    """Note that a handler is served by *calls*; refuse it if another one is."""
    for call in calls:
        for method in call.methods or (WEBSOCKET,):
            first = served.setdefault((method, call.path), name)
            if first != name:
                raise ViewDefinitionError(
                    subject,
                    f"{method} {call.path!r} of the view is served by {first}",
                    "Give it a path of its own",
                )


def _check_no_limit(raw: object, subject: str) -> None:
    if hasattr(raw, LIMITS_MARK):
        raise ViewDefinitionError(
            subject + where(raw),
            "it is limited, and no route leads to it",
            "Name it after an HTTP method, or add @route.get('/…')",
        )


def _calls(name: str, raw: object) -> tuple[RouteCall, ...]:
    """Return the routes that lead to *raw*, none if it is no handler."""
    marks: tuple[RouteCall, ...] = getattr(_function(raw), ROUTES_MARK, ())
    if marks or name not in VERBS:
        return marks
    return (RouteCall(name, ("",), {}),)


def _is_handler(name: str, value: object) -> bool:
    return callable(value) and bool(_calls(name, value))


def _handler(
    view: type, name: str, raw: object, calls: tuple[RouteCall, ...]
) -> Handler:
    marked: tuple[Limit, ...] | None = getattr(raw, LIMITS_MARK, None)
    throttle = setting_of(view, "throttle")
    handler = Handler(
        name,
        calls,
        None,
        key_func=setting_of(view, "key_func"),
        using=setting_of(view, "using"),
        bucket=setting_of(view, "bucket"),
    )
    if marked is None and throttle is None:
        return handler
    limits = handler.completed(limits_of(throttle) if marked is None else marked)
    for limit in limits:
        check_functions(limit)
        check_connection(handler.methods, limit.key_func, limit.quota, limit.cost)
    return handler.with_limits(limits)


def _check_slash(view: type, definition: Definition) -> None:
    """Refuse a path that would have two slashes where those of handlers begin."""
    calls = [call for handler in definition.handlers for call in handler.calls]
    if definition.path.endswith("/") and any(call.path for call in calls):
        raise ViewDefinitionError(
            f"{name_of(view)}.path",
            f"{definition.path!r} ends with a slash, and paths below it begin with one",
            f"Write {definition.path[:-1]!r}",
        )


def _check_no_mark_is_lost(view: type) -> None:
    """Refuse a decorator that hides what one below it declared."""
    for base in view.__mro__:
        for handler, mark in marked_in(name_of(base)):
            raw = _function(vars(base).get(getattr(handler, "__name__", "")))
            # Without the mark, but the same: it was decorated somewhere else.
            if raw and not hasattr(raw, mark) and not is_same(raw, handler):
                raise ViewDefinitionError(
                    f"{name_of(base)}.{handler.__name__}{where(handler)}",
                    "a decorator above @limit, @exempt or @route hides it",
                    "Use functools.wraps in that decorator, or write it below",
                )
    forget_marked(name_of(view))


def _function(raw: Any) -> Any:
    """Return *raw*, or the function in a staticmethod or classmethod."""
    return getattr(raw, "__func__", raw)


def _check_override(view: type, name: str, raw: object) -> None:
    """Refuse an override that silently loses what the overridden method declared."""
    overridden = [vars(base)[name] for base in view.__mro__ if name in vars(base)][1:2]
    for base_raw in overridden:
        for mark, decorator in ((ROUTES_MARK, "@route"), (LIMITS_MARK, "@limit")):
            if getattr(base_raw, mark, ()) and not hasattr(raw, mark):
                raise ViewDefinitionError(
                    f"{name_of(view)}.{name}{where(raw)}",
                    f"it overrides a handler and drops its {decorator}",
                    f"Repeat the {decorator} decorator on the override"
                    + (", or write @exempt" if mark == LIMITS_MARK else ""),
                )


def _check_method(view: type, name: str, raw: Any, subject: str) -> None:
    for wrapper in (staticmethod, classmethod):
        if isinstance(raw, wrapper):
            raise ViewDefinitionError(
                subject + where(raw),
                f"a {wrapper.__name__} is not called on an instance",
                f"Write 'async def {name}(self, …)' without the decorator",
            )
    if isinstance(raw, partial) or not is_async(raw):
        raise not_async(subject, raw)
    parameters = list(inspect.signature(getattr(view, name)).parameters.values())
    if any(each.kind in _VARIADIC for each in parameters):
        raise ViewDefinitionError(
            subject + where(raw),
            "its parameters were lost, so FastAPI could not fill them",
            "Use functools.wraps in the decorator around it, or name each parameter",
        )
    if not parameters or parameters[0].kind is inspect.Parameter.KEYWORD_ONLY:
        raise ViewDefinitionError(
            subject + where(raw),
            "it takes no self",
            f"Write 'async def {name}(self, …)'",
        )
