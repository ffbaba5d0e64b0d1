"""
Plain functions with limits of their own, or with none: the decorators of a limiter.

What a decorator returns is another function. The user's stays as it is.
"""

from __future__ import annotations

import inspect
from typing import Any, cast

from throttled_views._binding import (
    HandlerDecorator,
    HandlerT,
    in_class_body,
    is_async,
    name_of,
    not_async,
    return_annotation_of,
)
from throttled_views._declaration import Declaration, declaration_of, declare
from throttled_views._endpoints import guarded
from throttled_views._guard import guard_of
from throttled_views._insides import declare_guarded
from throttled_views._methods import methods_of
from throttled_views._parts import Binder, Part, late_functions
from throttled_views.errors import ViewDefinitionError
from throttled_views.limits import Limit
from throttled_views.quotas import Quota

__all__ = ["exempt", "limiting", "refuse_a_handler"]


class _LimitIsADecorator:
    """What FastAPI complains of where it is given a decorator to call."""


# By which FastAPI refuses `@limiter.limit` that was given a function for a quota, and
# `Depends(limiter.limit("5/m"))`; each request would be answered 422.
_OF_A_DECORATOR = inspect.Signature(
    [
        inspect.Parameter(
            "handler",
            inspect.Parameter.POSITIONAL_ONLY,
            annotation=_LimitIsADecorator,
        )
    ]
)


def limiting(limiter: Binder, limits: tuple[Limit, ...]) -> HandlerDecorator:
    """Return a decorator of functions that holds them to *limits* of *limiter*."""

    def decorate(handler: HandlerT, /) -> HandlerT:
        return _limited(limiter, handler, limits)

    cast("Any", decorate).__signature__ = _OF_A_DECORATOR
    return decorate


def exempt(handler: object) -> None:
    """Let *handler* say that it is unlimited on purpose."""
    _refuse_methods(handler, "exempt")
    if declaration_of(handler).parts:
        raise _both(handler)
    declare(handler, Declaration(handler, exempt=True))


def refuse_a_handler(quota: object, decorator: str) -> None:
    """Refuse a decorator without its parentheses, which takes a handler for a quota."""
    if not callable(quota) or isinstance(quota, Limit | Quota | type):
        return
    answer = return_annotation_of(quota)
    if answer is not str and not any(
        each in str(answer) for each in ("Quota", "EXEMPT")
    ):
        raise ViewDefinitionError(
            name_of(quota),
            f"{decorator} is given a function that returns no quota",
            f"Write {decorator}('5/m') with parentheses; annotate a quota function: "
            "'-> Quota'",
        )


def _limited(limiter: Binder, handler: HandlerT, limits: tuple[Limit, ...]) -> HandlerT:
    """Return *handler* with *limits* of *limiter*, added to those it has."""
    inner = declaration_of(handler)
    _check_can_be_limited(handler, limits, inner)
    parts = (*inner.parts, Part(limiter, limits))
    endpoint: HandlerT = guarded(
        handler,
        guard_of(lambda scope: declaration.plans(limiter, methods_of(scope))),
        late_functions(parts, limiter),
    )
    # Stacked on another limit it is one function with it, else one of its own: the
    # same function under two quotas has two counts.
    owner = inner.owner if inner.parts else endpoint
    declaration = Declaration(owner, parts=parts)
    declare_guarded(endpoint, handler, declaration)
    # What is wrong is told here, and the order of decoration numbers those of one name.
    declaration.plans(limiter, "")
    return endpoint


def _check_can_be_limited(
    handler: object, limits: tuple[Limit, ...], inner: Declaration
) -> None:
    _refuse_methods(handler, "limit(…)")
    if not is_async(handler):
        raise not_async(name_of(handler), handler)
    if not limits:
        raise ViewDefinitionError(
            name_of(handler), "EXEMPT is no limit", "Write @limiter.exempt"
        )
    if inner.exempt:
        raise _both(handler)


def _both(handler: object) -> ViewDefinitionError:
    return ViewDefinitionError(
        name_of(handler),
        "it is both exempt and limited",
        "Keep one: @limiter.exempt or @limiter.limit(…)",
    )


def _refuse_methods(handler: object, decorator: str) -> None:
    if in_class_body(handler):
        name = decorator.removesuffix("(…)")
        raise ViewDefinitionError(
            name_of(handler),
            f"@limiter.{decorator} is for functions, and this is a method",
            f"Write @{name}{'(…)' if name != decorator else ''} from throttled_views "
            "on methods of a ThrottledView",
        )
