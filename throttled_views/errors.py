"""
Everything we raise.

* ThrottledViewsError
  + ConfigurationError       you wrote something we cannot honour (import time)
    - InvalidQuotaError      … a quota
    - ViewDefinitionError    … a view or handler (a TypeError)
    - RegistrationError      … a route
  + LimitedError             the client must wait
    - RateLimitExceededError … and is told so with a 429 (throttled_views.outcome)
  + StoreUnavailableError    nobody could say whether the client must wait
  + InvalidAnswerError       a quota or cost function answered what it cannot
    - InvalidKeyError        … a key function, or a caller
  + NoRateLimitError         a result was asked for where no limit applied

No framework is imported here, so that stores and algorithms may raise these too.
"""

from __future__ import annotations

__all__ = [
    "ConfigurationError",
    "InvalidAnswerError",
    "InvalidKeyError",
    "InvalidQuotaError",
    "LimitedError",
    "NoRateLimitError",
    "RegistrationError",
    "StoreUnavailableError",
    "ThrottledViewsError",
    "ViewDefinitionError",
]

_LONGEST_SHOWN = 80


class ThrottledViewsError(Exception):
    """Base of every error of this package."""

    def __reduce__(self) -> tuple[object, ...]:
        """Be copied and pickled, whatever the class is made from."""
        return _restored, (type(self), self.args, self.__dict__)


def _restored(
    kind: type[ThrottledViewsError], args: tuple[object, ...], state: dict[str, object]
) -> ThrottledViewsError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


class ConfigurationError(ThrottledViewsError):
    """A declaration cannot be honoured; raised at import or registration."""


class SourceText(str):
    """What the user wrote, as it reads in the source: shown without quotes."""

    __slots__ = ()


def shown(given: object) -> str:
    """Return *given* as messages show it: of a length that can be read."""
    try:
        text = str(given) if isinstance(given, SourceText) else repr(given)
    except ValueError:  # an int of more digits than Python writes
        text = f"<a {type(given).__name__} too long to show>"
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


class InvalidQuotaError(ConfigurationError, ValueError):
    """
    The text or the numbers given do not make a quota.

    Attributes:
        given: What was passed, unchanged.
        reason: What is wrong with it.
    """

    def __init__(self, given: object, reason: str) -> None:
        self.given = given
        self.reason = reason
        super().__init__(
            f"{shown(given)} is not a quota: {reason}. "
            "Write '<limit>/<period>', for example '100/m', '5 per 10 minutes' or "
            "'10/s burst 20'"
        )


class _SubjectError(ConfigurationError):
    def __init__(self, subject: str, problem: str, remedy: str) -> None:
        self.subject = subject
        super().__init__(f"{subject}: {problem}. {remedy}")


class ViewDefinitionError(_SubjectError, TypeError):
    """
    A view class or a handler is written in a way that could not be limited.

    Attributes:
        subject: The class, method or function the message speaks of, by name.
    """


class RegistrationError(_SubjectError):
    """
    A route cannot be registered, because it would not be limited as declared.

    Attributes:
        subject: The route or handler the message speaks of, by name.
    """


class LimitedError(ThrottledViewsError):
    """A request was refused, because its client must wait."""


class StoreUnavailableError(ThrottledViewsError):
    """A store could not be asked; whether anything was charged is unknown."""


class InvalidAnswerError(ThrottledViewsError, ValueError):
    """
    A key, quota or cost function answered what it cannot answer.

    Neither "no limit" nor another guess is safe, so the request ends with this error.

    Attributes:
        given: The answer.
    """

    def __init__(
        self, given: object, source: str, instead: str, *, what: str | None = None
    ) -> None:
        self.given = given
        super().__init__(f"{source} gave {what or shown(given)}. {instead}")


class InvalidKeyError(InvalidAnswerError):
    """
    Something that cannot be a key was given as one, by a key function or a caller.

    Neither "no limit" nor "one bucket for everybody" is a safe guess. The message does
    not show it: it may be a secret.
    """

    def __init__(self, given: object, source: str) -> None:
        what = "''" if given == "" else f"a value of type {type(given).__name__}"
        super().__init__(
            given,
            source,
            "Give a non-empty str; a key function may also return None, where the "
            "limit does not apply",
            what=f"{what} as a key",
        )


class NoRateLimitError(ThrottledViewsError, LookupError):
    """The result of a request was asked for, but no limit applied to it."""

    def __init__(self) -> None:
        super().__init__(
            "No limit applied to this request, so there is no result. "
            "Look at `results`, which is empty then"
        )
