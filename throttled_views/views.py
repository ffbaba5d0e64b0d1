"""
Class-based views that declare their limits.

The metaclass checks a declaration when the class statement runs; `_definition` says
what it checks. It is a metaclass, and not ``__init_subclass__``, since no mixin can
leave it out, and since only a metaclass sees a handler that is written twice.
"""

from __future__ import annotations

from abc import ABCMeta
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from fastapi import params

from throttled_views._binding import name_of
from throttled_views._definition import VERBS, ClassBody, definition_of
from throttled_views._handlers import Definition
from throttled_views._marks import LIMITS_MARK, ROUTES_MARK
from throttled_views._view_binding import SETTINGS
from throttled_views.errors import ViewDefinitionError
from throttled_views.limiter import Limiter
from throttled_views.limits import KeyFunc, Throttle
from throttled_views.quotas import Algorithm
from throttled_views.routing import ThrottledRouter
from throttled_views.throttled import Throttled

__all__ = ["ThrottledView", "ThrottledViewMeta"]


class ThrottledViewMeta(ABCMeta):
    """
    Metaclass of views: checks what they declare, and builds their `Throttled`.

    To combine a view with a class of another metaclass, derive one from both:
    ``class M(ThrottledViewMeta, type(Other)): ...``.
    """

    @classmethod
    def __prepare__(
        metacls,  # noqa: N804 - what Python's own metaclasses call it
        name: str,
        _bases: tuple[type, ...],
        /,
        **_kwargs: object,
    ) -> dict[str, object]:
        """Return the namespace for a class body."""
        return ClassBody(name)

    def __new__(
        metacls,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, object],
        /,
        **kwargs: Any,
    ) -> ThrottledViewMeta:
        """Make a view class; raise `ConfigurationError` if it could not be limited."""
        view = super().__new__(metacls, name, bases, dict(namespace), **kwargs)
        definition = definition_of(view)
        throttled = {
            each.name: each.throttled
            for each in definition.handlers
            if each.throttled is not None
        }
        type.__setattr__(view, "__throttled_definition__", definition)
        type.__setattr__(view, "throttled", MappingProxyType(throttled))
        return view

    def __setattr__(cls, name: str, value: object) -> None:
        """Set an attribute, but none that was read when the class was made."""
        cls._check_is_open(name, value)
        super().__setattr__(name, value)

    def __delattr__(cls, name: str) -> None:
        """Delete an attribute, but none that was read when the class was made."""
        cls._check_is_open(name)
        super().__delattr__(name)

    def _check_is_open(cls, name: str, value: object = None) -> None:
        definition: Definition | None = vars(cls).get("__throttled_definition__")
        if definition is None:  # the class is not finished yet
            return
        handlers = [handler.name for handler in definition.handlers]
        is_marked = hasattr(value, ROUTES_MARK) or hasattr(value, LIMITS_MARK)
        if name in (*SETTINGS, *VERBS, *handlers) or is_marked:
            raise ViewDefinitionError(
                f"{name_of(cls)}.{name}",
                "it was read when the class was made; setting it now changes nothing",
                "Write it in the class body, or subclass",
            )


_Verb: TypeAlias = "Callable[..., Coroutine[Any, Any, Any] | AsyncIterator[Any]]"


class ThrottledView(metaclass=ThrottledViewMeta):
    """
    A class-based view whose handlers are limited.

    Methods named after HTTP methods serve `path`; others do with ``@route.get("/…")``.
    All are ``async def``. An instance is made for each request; parameters of
    ``__init__``, and annotated attributes that carry ``Annotated[…, Depends(…)]`` or
    the like, are injected.

    Raises:
        ViewDefinitionError: The class is written in a way that could not be limited.
        InvalidQuotaError: A text in it is not a quota.
        ConfigurationError: Another declaration in it cannot be honoured.

    Attributes:
        path: Path of the view, relative to the router's.
        tags: Tags of its routes.
        dependencies: Dependencies of its routes.
        throttle: What each handler is limited to, by itself; ``@limit`` on a handler
            replaces it. None leaves it to the limiter's default.
        key_func: Names the client to charge; None leaves it to the limiter.
        using: How quotas are counted; None leaves it to the limiter.
        bucket: Name of a bucket that all handlers share, with all others of this name.
        throttled: The limits of each handler that declares some, by its name.
    """

    path: str = ""
    tags: Sequence[str | Enum] = ()
    dependencies: Sequence[params.Depends] = ()
    throttle: Throttle | None = None
    key_func: KeyFunc | None = None
    using: Algorithm | None = None
    bucket: str | None = None
    throttled: ClassVar[Mapping[str, Throttled]]

    if TYPE_CHECKING:
        __throttled_definition__: ClassVar[Definition]
        # So that a checker refuses a `def get` that neither waits nor streams.
        get: _Verb
        post: _Verb
        put: _Verb
        patch: _Verb
        delete: _Verb
        head: _Verb
        options: _Verb
        trace: _Verb

    @classmethod
    def as_router(
        cls, limiter: Limiter | None = None, **kwargs: Any
    ) -> ThrottledRouter:
        """
        Return a router with this view on it.

        Args:
            limiter: The machinery to share; the process-wide default unless given.
            kwargs: What `APIRouter` takes.

        Raises:
            RegistrationError: The view cannot be registered; see
                `ThrottledRouter.add_view`.
        """
        router = ThrottledRouter(limiter, **kwargs)
        router.add_view(cls)
        return router
