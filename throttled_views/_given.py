"""What users give to a limiter, and to a `Throttled`, checked where they give it."""

from __future__ import annotations

from typing import cast

from throttled_views.errors import ConfigurationError, InvalidKeyError, shown
from throttled_views.limits import Limit, Throttle, limits_of
from throttled_views.quotas import Quota
from throttled_views.stores.base import Store

__all__ = [
    "DEFAULT_PREFIX",
    "checked_key",
    "checked_prefix",
    "checked_store",
    "checked_switch",
    "limits_by_hand",
]

DEFAULT_PREFIX = "throttled_views"


def checked_store(store: object) -> Store:
    """Return *store* if it is one, as far as can be seen."""
    if isinstance(store, type) or not callable(getattr(store, "acquire", None)):
        kind = store if isinstance(store, type) else type(store)
        is_for_redis = kind.__module__.partition(".")[0] == "redis" or kind is str
        redis = "RedisStore('redis://localhost:6379/0')"
        write = redis if is_for_redis else "MemoryStore()"
        msg = f"store={shown(store)} is no store. Write for example store={write}"
        raise ConfigurationError(msg)
    return cast("Store", store)


def checked_prefix(prefix: object) -> str:
    """Return *prefix* if it can be the first part of keys."""
    if not isinstance(prefix, str):
        msg = f"prefix={prefix!r} is no text. Write for example prefix='my_app'"
        raise ConfigurationError(msg)
    return prefix


def checked_switch(name: str, given: object) -> bool:
    """Return *given*, of the argument *name*, if it says whether something is on."""
    if not isinstance(given, bool):  # a text is on by whatever it says, "0" as well
        msg = (
            f"{name}={shown(given)} is neither True nor False. "
            f"Write {name}=True or {name}=False"
        )
        raise ConfigurationError(msg)
    return given


def checked_key(key: object) -> str:
    """Return *key* if it can name a client."""
    if not isinstance(key, str) or not key:
        raise InvalidKeyError(key, "The caller of Throttled")
    return key


def limits_by_hand(quota: Throttle) -> tuple[Limit, ...]:
    """
    Return the limits of *quota*, which are to be checked by hand, without a request.

    Raises:
        InvalidQuotaError: A text is not a quota.
        ConfigurationError: There is none, or one says what needs a request to be known.
    """
    limits = limits_of(quota)
    if not limits:
        msg = "EXEMPT is no limit to check by hand. Leave the check out"
        raise ConfigurationError(msg)
    for limit in limits:
        _check_by_hand(limit)
    return limits


def _check_by_hand(limit: Limit) -> None:
    """Raise ConfigurationError if *limit* says what needs a request to be known."""
    if not isinstance(limit.quota, Quota) or not isinstance(limit.cost, int):
        msg = (
            "A quota or cost function needs a request, and there is none here. Write "
            "a quota, for example Throttled('5/m')"
        )
        raise ConfigurationError(msg)
    if limit.refund_when is not None:
        msg = (
            "refund_when needs a response, and there is none here. Write "
            "'await throttled.refund(result)' where it is to be given back"
        )
        raise ConfigurationError(msg)
    if limit.shadow:
        msg = (
            "shadow=True is for limits of routes. By hand, look at what "
            "'await throttled.limit(key)' returns, and go on"
        )
        raise ConfigurationError(msg)
