"""
Rate limiting for FastAPI as typed, class-based views.

A view declares its limits; a router that includes it enforces them. See
`ThrottledView`, and `Limiter.limit` for plain functions.
"""

from importlib import import_module
from typing import TYPE_CHECKING

# Before what needs it: from the depth of our own imports it takes a tenth longer, since
# Python 3.11 maps a piece of stack for call after call there, and unmaps it again.
import fastapi  # noqa: F401  # pyright: ignore[reportUnusedImport]

from throttled_views.context import RateLimitContext
from throttled_views.errors import (
    ConfigurationError,
    InvalidAnswerError,
    InvalidKeyError,
    InvalidQuotaError,
    LimitedError,
    NoRateLimitError,
    RegistrationError,
    StoreUnavailableError,
    ThrottledViewsError,
    ViewDefinitionError,
)
from throttled_views.headers import (
    EXPOSED_HEADERS,
    LEGACY_HEADERS,
    HeaderPolicy,
    IETFHeaders,
    RateLimitHeaderPolicy,
)
from throttled_views.hooks import (
    CheckedLimit,
    CheckEvent,
    CheckOutcome,
    CheckPhase,
    Hook,
    StoreStateEvent,
)
from throttled_views.keys import (
    ClientIP,
    KeyParts,
    client_ip,
    compose_key,
    everyone,
    first_of,
    get_remote_address,
    header_key,
    path_key,
)
from throttled_views.limiter import Limiter
from throttled_views.limits import (
    EXEMPT,
    CostFunc,
    Exempt,
    KeyFunc,
    Limit,
    QuotaFunc,
    RefundWhen,
    Throttle,
)
from throttled_views.middleware import RateLimitMiddleware
from throttled_views.outcome import (
    CurrentRateLimit,
    RateLimitExceededError,
    rate_limit_exceeded_handler,
)
from throttled_views.quotas import Algorithm, Quota
from throttled_views.results import (
    Charge,
    OnStoreError,
    RateLimitResult,
    RateLimitState,
    Receipt,
)
from throttled_views.route_keys import RouteKey, by_endpoint, by_template
from throttled_views.routing import (
    ThrottledRoute,
    ThrottledRouter,
    exempt,
    limit,
    route,
)
from throttled_views.stores.base import Clock, Store
from throttled_views.stores.memory import MemoryStore
from throttled_views.throttled import Throttled
from throttled_views.views import ThrottledView, ThrottledViewMeta

if TYPE_CHECKING:
    from throttled_views.auditing import AuditedLimit, AuditedRoute, audit
    from throttled_views.openapi import document_limits

__all__ = [
    "EXEMPT",
    "EXPOSED_HEADERS",
    "LEGACY_HEADERS",
    "Algorithm",
    "AuditedLimit",
    "AuditedRoute",
    "Charge",
    "CheckEvent",
    "CheckOutcome",
    "CheckPhase",
    "CheckedLimit",
    "ClientIP",
    "Clock",
    "ConfigurationError",
    "CostFunc",
    "CurrentRateLimit",
    "Exempt",
    "HeaderPolicy",
    "Hook",
    "IETFHeaders",
    "InvalidAnswerError",
    "InvalidKeyError",
    "InvalidQuotaError",
    "KeyFunc",
    "KeyParts",
    "Limit",
    "LimitedError",
    "Limiter",
    "MemoryStore",
    "NoRateLimitError",
    "OnStoreError",
    "Quota",
    "QuotaFunc",
    "RateLimitContext",
    "RateLimitExceededError",
    "RateLimitHeaderPolicy",
    "RateLimitMiddleware",
    "RateLimitResult",
    "RateLimitState",
    "Receipt",
    "RefundWhen",
    "RegistrationError",
    "RouteKey",
    "Store",
    "StoreStateEvent",
    "StoreUnavailableError",
    "Throttle",
    "Throttled",
    "ThrottledRoute",
    "ThrottledRouter",
    "ThrottledView",
    "ThrottledViewMeta",
    "ThrottledViewsError",
    "ViewDefinitionError",
    "audit",
    "by_endpoint",
    "by_template",
    "client_ip",
    "compose_key",
    "document_limits",
    "everyone",
    "exempt",
    "first_of",
    "get_remote_address",
    "header_key",
    "limit",
    "path_key",
    "rate_limit_exceeded_handler",
    "route",
]

# Of no use to an application that serves; imported when somebody asks for it.
_ASKED_FOR = {
    "AuditedLimit": "auditing",
    "AuditedRoute": "auditing",
    "audit": "auditing",
    "document_limits": "openapi",
}


def __getattr__(name: str) -> object:
    """Import what is seldom asked for."""
    if name not in _ASKED_FOR:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(import_module(f"{__name__}.{_ASKED_FOR[name]}"), name)


def __dir__() -> list[str]:
    """List what is public, also what was not imported yet."""
    return sorted({*globals(), *__all__})
