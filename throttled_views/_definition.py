"""
What makes a view class well-formed: the checks behind `ThrottledViewMeta`.

Whatever could let a request through unlimited is refused here, when the class statement
runs, with what to write instead.
"""

from __future__ import annotations

import inspect
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from enum import Enum
from functools import partial
from typing import Any, cast

from fastapi import params

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
from throttled_views._view_binding import SETTINGS
from throttled_views.errors import ConfigurationError, ViewDefinitionError
from throttled_views.limits import Limit, available, limits_of

__all__ = ["VERBS", "ClassBody", "definition_of"]

VERBS = ("get", "post", "put", "patch", "delete", "head", "options", "trace")

_FASTAPI_VALUES = (params.Depends, params.Param, params.Body)
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
    for name in SETTINGS:
        with _noted(f"It is declared as {name_of(view)}.{name}"):
            _check_setting(view, name)
    _check_spelling(view)
    _check_injected_values(view)
    _check_no_mark_is_lost(view)
    definition = Definition(
        path=_setting(view, "path") or "",
        options={
            "tags": tuple(_setting(view, "tags") or ()),
            "dependencies": tuple(_setting(view, "dependencies") or ()),
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
        for call in calls:
            for method in call.methods or (WEBSOCKET,):
                first = served.setdefault((method, call.path), name)
                if first != name:
                    raise ViewDefinitionError(
                        subject + where(raw),
                        f"{method} {call.path!r} of the view is served by {first}",
                        "Give it a path of its own",
                    )
        with _noted(f"It is declared for {subject}{where(raw)}"):
            handler = _handler(view, name, raw, calls)
        yield handler


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
    throttle = _setting(view, "throttle")
    handler = Handler(
        name,
        calls,
        None,
        key_func=_setting(view, "key_func"),
        using=_setting(view, "using"),
        bucket=_setting(view, "bucket"),
    )
    if marked is None and throttle is None:
        return handler
    limits = handler.completed(limits_of(throttle) if marked is None else marked)
    for limit in limits:
        check_functions(limit)
        check_connection(handler.methods, limit.key_func, limit.quota, limit.cost)
    return handler.with_limits(limits)


def _setting(view: type, name: str) -> Any:
    """Return what was written for *name*; a function is not bound to the class."""
    raw = inspect.getattr_static(view, name, None)
    return raw.__func__ if isinstance(raw, staticmethod) else raw


def _check_spelling(view: type) -> None:
    """Refuse what looks like a setting and is none: what it says would be left out."""
    if "on_store_error" in vars(view):
        raise ViewDefinitionError(
            f"{name_of(view)}.on_store_error",
            "it is an option of limits and limiters, not a setting of a view",
            "Write throttle = Limit('100/m', on_store_error='deny')",
        )
    for name in vars(view):
        for meant in get_close_matches(name, ("throttle", "key_func"), 1, cutoff=0.8):
            if name not in (meant, "throttled"):
                raise ViewDefinitionError(
                    f"{name_of(view)}.{name}",
                    f"it is no setting of a view, but nearly {meant!r}",
                    f"Write {meant} = …, or give it another name",
                )


def _check_slash(view: type, definition: Definition) -> None:
    """Refuse a path that would have two slashes where those of handlers begin."""
    calls = [call for handler in definition.handlers for call in handler.calls]
    if definition.path.endswith("/") and any(call.path for call in calls):
        raise ViewDefinitionError(
            f"{name_of(view)}.path",
            f"{definition.path!r} ends with a slash, and paths below it begin with one",
            f"Write {definition.path[:-1]!r}",
        )


def _check_setting(view: type, name: str) -> None:
    value = _setting(view, name)
    if value is None:
        return
    if name == "path" and not _is_path(value):
        raise ViewDefinitionError(
            f"{name_of(view)}.path",
            f"{value!r} is no path",
            "Write for example '/items'",
        )
    if name == "tags" and not _is_list_of(value, str, Enum):
        raise ViewDefinitionError(
            f"{name_of(view)}.tags", f"{value!r} is no list of tags", "Write ['items']"
        )
    if name == "dependencies" and not _is_list_of(value, params.Depends):
        raise ViewDefinitionError(
            f"{name_of(view)}.dependencies",
            f"{value!r} is no list of dependencies",
            "Write [Depends(…)]",
        )
    if name == "key_func":
        check_functions(Limit("1/s", key_func=value))
    if name == "using":
        available(value)
    if name == "bucket":
        Limit("1/s", bucket=value)


def _is_list_of(value: object, *kinds: type) -> bool:
    if isinstance(value, str) or not isinstance(value, Sequence):
        return False
    return all(isinstance(each, kinds) for each in cast("Sequence[object]", value))


def _is_path(value: object) -> bool:
    return isinstance(value, str) and (not value or value.startswith("/"))


@contextmanager
def _noted(note: str) -> Generator[None]:
    """Add *note* to an error, which does not know where it was declared."""
    try:
        yield
    except ConfigurationError as error:
        error.add_note(note)
        raise


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


def _check_injected_values(view: type) -> None:
    annotated = {
        name for base in view.__mro__ for name in inspect.get_annotations(base)
    }
    for base in view.__mro__:
        for name, value in vars(base).items():
            if isinstance(value, _FASTAPI_VALUES) and name not in annotated:
                raise ViewDefinitionError(
                    f"{name_of(view)}.{name}",
                    "it has no annotation, so nothing would be injected",
                    f"Write '{name}: Annotated[<type>, {type(value).__name__}(…)]'",
                )


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
