"""Quotas: how they are written, what they refuse, and that they are values."""

import copy
import json
import math
import pickle
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Literal

import pytest
from hypothesis import given
from pydantic import BaseModel, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from tests.strategies import UNITS_US, quotas
from throttled_views import Algorithm, InvalidQuotaError, Quota
from throttled_views.quotas import length_us

CENTURY = timedelta(days=36_525)

unchecked: Any = Quota
"""`Quota`, to be given what a type checker refuses."""


def pickled(quota: Quota) -> object:
    """Return what comes out of a pickle of *quota*."""
    return pickle.loads(pickle.dumps(quota))  # noqa: S301


@pytest.mark.parametrize(
    ("constructor", "period"),
    [
        pytest.param(Quota.per_second, timedelta(seconds=1), id="second"),
        pytest.param(Quota.per_minute, timedelta(minutes=1), id="minute"),
        pytest.param(Quota.per_hour, timedelta(hours=1), id="hour"),
        pytest.param(Quota.per_day, timedelta(days=1), id="day"),
        pytest.param(Quota.per_week, timedelta(weeks=1), id="week"),
    ],
)
def test_constructors_name_the_period(
    constructor: Callable[..., Quota], period: timedelta
) -> None:
    """Each constructor takes the limit and the burst for the period in its name."""
    assert Quota(5, period) == constructor(5)
    assert Quota(5, period, burst=20) == constructor(5, burst=20)


def test_the_burst_is_the_limit_unless_given() -> None:
    """Without a burst a fresh key can make what comes back in one period."""
    assert 5 == Quota.per_minute(5).burst
    assert Quota.per_minute(5, burst=5) == Quota.per_minute(5)


@pytest.mark.parametrize(
    ("seconds", "period_us"),
    [
        pytest.param(60, 60_000_000, id="whole"),
        pytest.param(0.1, 100_000, id="part"),
        pytest.param(1e-6, 1, id="shortest"),
        pytest.param(1.000_000_6, 1_000_001, id="rounded"),
    ],
)
def test_a_number_is_a_period_in_seconds(seconds: float, period_us: int) -> None:
    """A period given as a number is in seconds, taken to the nearest microsecond."""
    assert period_us == Quota(1, seconds).period_us


@pytest.mark.parametrize(
    ("text", "quota"),
    [
        pytest.param("100/m", Quota.per_minute(100), id="short"),
        pytest.param("5 per 10 minutes", Quota(5, 600), id="words"),
        pytest.param("100/15m", Quota(100, 900), id="several units"),
        pytest.param("100/15 m", Quota(100, 900), id="space before the unit"),
        pytest.param("10/s burst 20", Quota.per_second(10, burst=20), id="burst"),
        pytest.param("1000/day", Quota.per_day(1000), id="long unit"),
        pytest.param("3 PER Hour BURST 4", Quota.per_hour(3, burst=4), id="capitals"),
        pytest.param(" 5 / m\n", Quota.per_minute(5), id="spaces"),
        pytest.param("005/1m", Quota.per_minute(5), id="leading zeros"),
        pytest.param("0/s", Quota.per_second(0), id="zero"),
        pytest.param("10/200ms", Quota(10, 0.2), id="milliseconds"),
        pytest.param(
            "1000000000000/us",
            Quota(10**12, timedelta(microseconds=1)),
            id="most and fastest",
        ),
        pytest.param("1/36525d", Quota(1, CENTURY), id="slowest"),
    ],
)
def test_text_is_read(text: str, quota: Quota) -> None:
    """Quotas are read from short and long text."""
    assert quota == Quota.parse(text)


@pytest.mark.parametrize(
    ("spelling", "unit"),
    [
        *[(unit, unit) for unit in UNITS_US],
        ("sec", "s"),
        ("second", "s"),
        ("seconds", "s"),
        ("min", "m"),
        ("minute", "m"),
        ("minutes", "m"),
        ("hour", "h"),
        ("hours", "h"),
        ("day", "d"),
        ("days", "d"),
        ("week", "w"),
        ("weeks", "w"),
    ],
)
@pytest.mark.parametrize("form", ["3/{}", "3/1{}", "3 per {}", "3 PER 1 {} BURST 3"])
def test_units_have_several_spellings(form: str, spelling: str, unit: str) -> None:
    """A unit may be spelled in full or in short, wherever a period is written."""
    expected = Quota(3, timedelta(microseconds=UNITS_US[unit]))

    assert expected == Quota.parse(form.format(spelling))


@pytest.mark.parametrize(
    ("text", "expected_us"),
    [
        *UNITS_US.items(),
        ("10m", 600_000_000),
        (" 10 MINUTES\n", 600_000_000),
        ("36525d", CENTURY // timedelta(microseconds=1)),
    ],
    ids=repr,
)
def test_a_length_of_time_is_read(text: str, expected_us: int) -> None:
    """In the units that quotas have, with a number or without."""
    assert expected_us == length_us(text)


@pytest.mark.parametrize(
    "text",
    [
        *("", "10", "0s", "-1s", "1.5s", "10 fortnights"),
        *("10m burst 3", "1/s", "1m; 1h"),
        *("36526d", "00000000000000001s"),
    ],
)
def test_what_is_no_length_of_time_is_none(text: str) -> None:
    """Nor is what is a quota, is too long for one, or has more in it."""
    assert length_us(text) is None


@pytest.mark.parametrize(
    ("quota", "text"),
    [
        pytest.param(Quota.per_minute(100), "100/m", id="one unit"),
        pytest.param(Quota(5, 600), "5/10m", id="several units"),
        pytest.param(Quota.per_second(10, burst=20), "10/s burst 20", id="burst"),
        pytest.param(Quota(1, timedelta(days=14)), "1/2w", id="largest unit"),
        pytest.param(Quota(7, 1.5), "7/1500ms", id="no whole seconds"),
        pytest.param(Quota(1, timedelta(microseconds=1)), "1/us", id="shortest"),
        pytest.param(Quota.per_hour(0), "0/h", id="zero"),
    ],
)
def test_text_is_as_short_as_it_can_be(quota: Quota, text: str) -> None:
    """A quota is shown in the largest unit that divides its period."""
    assert text == str(quota)


@given(quotas())
def test_text_is_read_back(quota: Quota) -> None:
    """The text of any quota is read back as that quota."""
    assert quota == Quota.parse(str(quota))


def test_text_of_the_longest_periods_is_read_back() -> None:
    """A period of nearly a century, to the microsecond, is read back too."""
    quota = Quota(1, CENTURY - timedelta(microseconds=1))

    assert quota == Quota.parse(str(quota))


@pytest.mark.parametrize(
    ("arguments", "burst", "reason"),
    [
        pytest.param((True, 1), None, "limit is not a whole", id="limit is a bool"),
        pytest.param((1.0, 1), None, "limit is not a whole", id="limit is a float"),
        pytest.param(("5", 1), None, "limit is not a whole", id="limit is text"),
        pytest.param((None, 1), None, "limit is not a whole", id="limit is None"),
        pytest.param((-1, 1), None, "limit is negative", id="limit negative"),
        pytest.param((10**12 + 1, 1), None, r"above 10\*\*12", id="limit too large"),
        pytest.param((10**30, 1), None, r"above 10\*\*12", id="limit huge"),
        pytest.param((1, True), None, "period is not a timedelta", id="period a bool"),
        pytest.param((1, "1"), None, "period is not a timedelta", id="period text"),
        pytest.param((1, None), None, "period is not a timedelta", id="period None"),
        pytest.param((1, math.nan), None, "period is not a number", id="period NaN"),
        pytest.param((1, math.inf), None, "over 100 years", id="period inf"),
        pytest.param((1, 1e300), None, "over 100 years", id="period huge float"),
        pytest.param((1, 10**30), None, "over 100 years", id="period huge int"),
        pytest.param(
            (1, CENTURY + timedelta(microseconds=1)),
            None,
            "over 100 years",
            id="period over a century",
        ),
        pytest.param((1, 0), None, "period is zero", id="period zero"),
        pytest.param((1, timedelta(0)), None, "period is zero", id="no timedelta"),
        pytest.param((1, 1e-7), None, "period is zero", id="period below 1 us"),
        pytest.param((1, -1), None, "period is negative", id="period negative"),
        pytest.param((1, timedelta(-1)), None, "period is negative", id="timedelta -1"),
        pytest.param((1, 1), True, "burst is not a whole", id="burst is a bool"),
        pytest.param((1, 1), 2.0, "burst is not a whole", id="burst is a float"),
        pytest.param((1, 1), -1, "burst is negative", id="burst negative"),
        pytest.param((1, 1), 0, "burst below 1 admits nothing", id="burst zero"),
        pytest.param((1, 1), 10**30, r"above 10\*\*12", id="burst huge"),
        pytest.param((0, 1), 1, "never refills a burst", id="burst of a zero quota"),
        pytest.param(
            (1, timedelta(days=30)), 10**9, "over 100 years to refill", id="refill"
        ),
    ],
)
def test_numbers_that_make_no_quota_are_refused(
    arguments: tuple[object, object], burst: object, reason: str
) -> None:
    """The error names the call, what is wrong with it, and ends with an example."""
    limit, period = arguments

    with pytest.raises(InvalidQuotaError, match=reason) as caught:
        unchecked(limit, period, burst=burst)

    assert f"Quota({limit!r}, " in str(caught.value)
    assert str(caught.value).endswith("or '10/s burst 20'")


@pytest.mark.parametrize(
    ("limit", "period"),
    [
        pytest.param(10**5000, 1, id="limit"),
        pytest.param(1, 10**400, id="period"),
    ],
)
def test_integers_of_any_size_are_refused_alike(limit: int, period: int) -> None:
    """An int that Python cannot show or convert is an invalid quota like any other."""
    with pytest.raises(InvalidQuotaError, match=r"^Quota\(.* is not a quota"):
        Quota(limit, period)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param("", "not of the form", id="empty"),
        pytest.param("5", "not of the form", id="number"),
        pytest.param("5/", "not of the form", id="no unit"),
        pytest.param("/m", "not of the form", id="no limit"),
        pytest.param("5m", "not of the form", id="no separator"),
        pytest.param("5/m/h", "not of the form", id="two periods"),
        pytest.param("-5/m", "not of the form", id="negative"),
        pytest.param("+5/m", "not of the form", id="signed"),
        pytest.param("5.5/m", "not of the form", id="fraction"),
        pytest.param("1e3/m", "not of the form", id="exponent"),
        pytest.param("1_000/m", "not of the form", id="underscore"),
        pytest.param("\u0665/m", "not of the form", id="digits of another script"),
        pytest.param("5/m burst", "not of the form", id="no burst"),
        pytest.param("5/mburst 3", "not of the form", id="no space before burst"),
        pytest.param("5/m burst -1", "not of the form", id="negative burst"),
        pytest.param("5/0m", "period is zero", id="zero period"),
        pytest.param("5 per fortnight", "unit 'fortnight' is unknown", id="fortnight"),
        pytest.param("5/month", "unit 'month' is unknown", id="month"),
        pytest.param("5/M5", "not of the form", id="unit before number"),
        pytest.param("1/s; 2/m", "it is a list", id="list"),
        pytest.param("5/m;", "it is a list", id="list of one"),
        pytest.param("5/m burst 0", "burst below 1", id="zero burst"),
        pytest.param("0/m burst 1", "never refills", id="burst of a zero quota"),
        pytest.param("1000000000001/m", r"above 10\*\*12", id="above the bound"),
        pytest.param("9" * 17 + "/m", "over 16 digits", id="17 digits"),
        pytest.param("9" * 100_000 + "/m", "over 16 digits", id="huge limit"),
        pytest.param("1/" + "9" * 100_000 + "m", "over 16 digits", id="huge period"),
        pytest.param("1/m burst " + "9" * 100_000, "over 16 digits", id="huge burst"),
        pytest.param("1/" + "m" * 100_000, "is unknown", id="huge unit"),
        pytest.param("1/999999999999999w", "over 100 years", id="weeks overflow"),
        pytest.param("1/5300w", "over 100 years", id="over a century"),
        pytest.param(" " * 100_000, "not of the form", id="many spaces"),
        pytest.param("x" * 100_000, "not of the form", id="much text"),
    ],
)
def test_text_that_makes_no_quota_is_refused(text: str, reason: str) -> None:
    """The error has the text, what is wrong with it, and ends with an example."""
    with pytest.raises(InvalidQuotaError, match=reason) as caught:
        Quota.parse(text)

    assert text == caught.value.given
    assert repr(text)[:80] in str(caught.value)
    assert 350 > len(str(caught.value))
    assert str(caught.value).endswith("or '10/s burst 20'")


@pytest.mark.parametrize("value", [None, 5, b"5/m", ["5/m"]])
def test_what_is_not_text_is_not_parsed(value: object) -> None:
    """Only a str is read."""
    with pytest.raises(InvalidQuotaError, match="it is not text"):
        unchecked.parse(value)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(Quota.per_minute(6, burst=20), id="limit"),
        pytest.param(Quota.per_hour(5, burst=20), id="period"),
        pytest.param(Quota.per_minute(5, burst=21), id="burst"),
        pytest.param("5/m burst 20", id="text"),
    ],
)
def test_quotas_differ_by_each_number(other: object) -> None:
    """Quotas are equal only if limit, period and burst are."""
    assert other != Quota.per_minute(5, burst=20)


def test_equal_quotas_are_one_key() -> None:
    """However they are written, equal quotas hash alike."""
    spellings = {Quota.per_minute(5), Quota(5, 60.0, burst=5), Quota.parse("5/60s")}

    assert {Quota.per_minute(5)} == spellings


def test_a_quota_cannot_be_changed() -> None:
    """Setting a field of a quota raises."""
    quota: Any = Quota.per_minute(5)

    with pytest.raises(AttributeError):
        quota.limit = 6

    assert Quota.per_minute(5) == quota


@pytest.mark.parametrize(
    "duplicate",
    [
        pytest.param(copy.copy, id="copy"),
        pytest.param(copy.deepcopy, id="deepcopy"),
        pytest.param(pickled, id="pickle"),
    ],
)
def test_a_quota_survives_being_copied(duplicate: Callable[[Quota], object]) -> None:
    """Copies and pickles are equal to the original."""
    quota = Quota.per_minute(5, burst=20)

    assert quota == duplicate(quota)


@pytest.mark.parametrize("name", list(Algorithm))
def test_algorithms_are_their_names(name: str) -> None:
    """An algorithm is found by the text that it is."""
    assert name == Algorithm(name).value


class Plan(BaseModel):
    """A model with a quota."""

    quota: Quota


@pytest.mark.parametrize(
    "value",
    [
        pytest.param("5/m burst 20", id="text"),
        pytest.param(Quota.per_minute(5, burst=20), id="quota"),
    ],
)
def test_a_model_takes_text_and_quotas(value: object) -> None:
    """A field of a Pydantic model validates from text and from a quota."""
    plan = Plan.model_validate({"quota": value})

    assert Quota.per_minute(5, burst=20) == plan.quota


def test_a_model_goes_through_json() -> None:
    """A quota is text in JSON, and is read back from it."""
    plan = Plan(quota=Quota.per_minute(5, burst=20))

    assert {"quota": "5/m burst 20"} == json.loads(plan.model_dump_json())
    assert {"quota": "5/m burst 20"} == plan.model_dump(mode="json")
    assert plan == Plan.model_validate_json(plan.model_dump_json())


@pytest.mark.parametrize("mode", ["validation", "serialization"])
def test_a_schema_describes_a_quota_as_text(
    mode: Literal["validation", "serialization"],
) -> None:
    """JSON Schema, and so OpenAPI, says that a quota is text, with examples."""
    field = Plan.model_json_schema(mode=mode)["properties"]["quota"]

    assert "string" == field["type"]
    assert all(isinstance(Quota.parse(text), Quota) for text in field["examples"])


def test_a_schema_shows_a_default_as_text() -> None:
    """The default of a field is described as the text that it validates from."""

    class WithDefault(BaseModel):
        quota: Quota = Quota.per_minute(5)

    field = WithDefault.model_json_schema()["properties"]["quota"]

    assert "5/m" == field["default"]


@pytest.mark.parametrize("value", ["5 per fortnight", 5, None, {"limit": 5}, True])
def test_a_model_refuses_what_is_no_quota(value: object) -> None:
    """What is neither a quota nor its text is a validation error of the field."""
    with pytest.raises(ValidationError) as caught:
        Plan.model_validate({"quota": value})

    assert {"quota"} == {error["loc"][0] for error in caught.value.errors()}


def test_a_model_says_why_text_is_no_quota() -> None:
    """The validation error has our message, with the example at its end."""
    with pytest.raises(ValidationError, match=r"unit 'fortnight' is unknown.*20'"):
        Plan.model_validate_json('{"quota": "5 per fortnight"}')


class Settings(BaseSettings):
    """Settings with quotas, one of them optional."""

    model_config = SettingsConfigDict(env_prefix="LIMITS_")

    api: Quota = Quota.per_minute(60)
    admin: Quota | None = None


def test_settings_have_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    """A setting that the environment does not name keeps its default."""
    monkeypatch.delenv("LIMITS_API", raising=False)

    assert Quota.per_minute(60) == Settings().api


@pytest.mark.parametrize("name", ["api", "admin"])
def test_settings_read_quotas_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A setting is read from the text of an environment variable as it is."""
    monkeypatch.setenv(f"LIMITS_{name.upper()}", "7/m burst 9")

    assert Quota.per_minute(7, burst=9) == getattr(Settings(), name)


def test_settings_refuse_what_is_no_quota(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong environment variable fails when the settings are made."""
    monkeypatch.setenv("LIMITS_API", "7 per fortnight")

    with pytest.raises(ValueError, match="api"):
        Settings()
