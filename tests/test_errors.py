"""The errors: who catches them, and what they say."""

import copy
import pickle

import pytest

from throttled_views import (
    ConfigurationError,
    InvalidAnswerError,
    InvalidKeyError,
    InvalidQuotaError,
    LimitedError,
    NoRateLimitError,
    Quota,
    RateLimitExceededError,
    RegistrationError,
    StoreUnavailableError,
    ThrottledViewsError,
    ViewDefinitionError,
)


@pytest.mark.parametrize(
    ("error", "bases"),
    [
        pytest.param(ConfigurationError, {ThrottledViewsError}, id="configuration"),
        pytest.param(InvalidQuotaError, {ConfigurationError, ValueError}, id="quota"),
        pytest.param(ViewDefinitionError, {ConfigurationError, TypeError}, id="view"),
        pytest.param(RegistrationError, {ConfigurationError}, id="registration"),
        pytest.param(LimitedError, {ThrottledViewsError}, id="limited"),
        pytest.param(RateLimitExceededError, {LimitedError}, id="exceeded"),
        pytest.param(StoreUnavailableError, {ThrottledViewsError}, id="store"),
        pytest.param(InvalidKeyError, {ThrottledViewsError, ValueError}, id="key"),
        pytest.param(NoRateLimitError, {ThrottledViewsError, LookupError}, id="result"),
    ],
)
def test_errors_are_caught_by_their_place_in_the_tree(
    error: type[Exception], bases: set[type[Exception]]
) -> None:
    """An error is caught by who must act, and by the built-in error that it is like."""
    assert set() == {base for base in bases if not issubclass(error, base)}


def test_an_invalid_quota_keeps_what_was_given() -> None:
    """The error has the value as it was passed, and the reason alone."""
    given = ["5/m"]

    error = InvalidQuotaError(given, "it is not text")

    assert error.given is given
    assert "it is not text" == error.reason


def test_an_invalid_quota_says_what_to_write() -> None:
    """The message has the value, the reason and an example of a quota at its end."""
    error = InvalidQuotaError("5/x", "the unit 'x' is unknown")

    assert (
        "'5/x' is not a quota: the unit 'x' is unknown. Write '<limit>/<period>', "
        "for example '100/m', '5 per 10 minutes' or '10/s burst 20'"
    ) == str(error)


def test_an_invalid_quota_of_numbers_is_shown_as_written() -> None:
    """A call is shown as it reads in the source, without quotes around it."""
    with pytest.raises(InvalidQuotaError, match=r"^Quota\(5, 1, burst=0\) is not a"):
        Quota(5, 1, burst=0)


def test_a_long_value_is_shown_in_part() -> None:
    """However long the value is, the message stays readable."""
    error = InvalidQuotaError("9" * 100_000, "it is too much")

    assert "9999… is not a quota" in str(error)
    assert 300 > len(str(error))
    assert "9" * 100_000 == error.given


@pytest.mark.parametrize("error", [ViewDefinitionError, RegistrationError])
def test_a_wrong_declaration_names_its_subject(
    error: type[ViewDefinitionError | RegistrationError],
) -> None:
    """The message says who, what and what to write; who is an attribute, too."""
    raised = error("Items.get", "it is sync", "Write 'async def get(self)'")

    assert "Items.get" == raised.subject
    assert "Items.get: it is sync. Write 'async def get(self)'" == str(raised)


def test_an_invalid_key_names_its_source() -> None:
    """The message says who gave the key and what a key is; the key is an attribute."""
    error = InvalidKeyError("", "The key function by_user")

    assert not error.given
    assert (
        "The key function by_user gave '' as a key. Give a non-empty str; a key "
        "function may also return None, where the limit does not apply"
    ) == str(error)


def test_a_missing_result_says_where_to_look() -> None:
    """The message points to what is there when no limit applied."""
    assert "Look at `results`, which is empty then" in str(NoRateLimitError())


EVERY_ERROR = {
    "quota": InvalidQuotaError("5/x", "the unit is unknown"),
    "view": ViewDefinitionError("View.get", "it is sync", "Write async def"),
    "route": RegistrationError("View.get", "nothing limits it", "Write a quota"),
    "key": InvalidKeyError(b"secret", "The key function f"),
    "answer": InvalidAnswerError(None, "The quota function f", "Return a quota"),
    "no limit": NoRateLimitError(),
    "store": StoreUnavailableError("it is down"),
}


@pytest.mark.parametrize("error", EVERY_ERROR.values(), ids=EVERY_ERROR)
def test_an_error_can_be_sent_to_another_process(error: ThrottledViewsError) -> None:
    """Pickled or copied it says what it said, and has the same attributes."""
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):  # noqa: S301
        assert type(error) is type(again)
        assert str(error) == str(again)
        assert vars(error) == vars(again)


def test_a_key_that_is_none_is_not_shown() -> None:
    """It may be a secret, and messages end in logs."""
    error = InvalidKeyError(b"secret", "The key function f")

    assert b"secret" == error.given
    assert "gave a value of type bytes as a key" in str(error)
