"""What a view declares: limits, and the one spelling of "no limit"."""

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from typing import Any, get_type_hints

import pytest
from starlette.requests import Request

from throttled_views import (
    EXEMPT,
    Algorithm,
    ConfigurationError,
    Exempt,
    InvalidQuotaError,
    Limit,
    Quota,
    Throttle,
    client_ip,
    everyone,
)
from throttled_views.limits import (
    LimitOptions,
    available,
    check_distinct,
    limit_text,
    limits_of,
    names_of,
    slots_of,
)
from throttled_views.results import OnStoreError

FIVE = Quota.per_minute(5)

unchecked: Any = Limit
"""`Limit`, to be given what a type checker refuses."""


def by_plan(request: Request) -> Quota:
    """Choose a quota."""
    return FIVE


def by_size(request: Request) -> int:
    """Tell a cost."""
    return 2


class ByPlan:
    """Choose a quota, as an object."""

    def __call__(self, request: Request) -> str:
        """Return it."""
        return "5/m"


# --- Limit


def test_a_limit_has_defaults() -> None:
    """A quota is enough; all else is left to the view."""
    limit = Limit(FIVE)

    assert (FIVE, None, 1, None, None, None, None) == (
        limit.quota,
        limit.key_func,
        limit.cost,
        limit.name,
        limit.using,
        limit.bucket,
        limit.on_store_error,
    )


def test_a_limit_keeps_its_options() -> None:
    """What is given differs from the view's defaults."""
    limit = Limit(
        FIVE,
        key_func=everyone,
        cost=2,
        name="per minute",
        using=Algorithm.GCRA,
        bucket="shared",
    )

    assert (everyone, 2, "per minute", Algorithm.GCRA, "shared") == (
        limit.key_func,
        limit.cost,
        limit.name,
        limit.using,
        limit.bucket,
    )


def test_a_quota_may_be_text() -> None:
    """The text of a quota is read when the limit is declared."""
    assert Limit(FIVE) == Limit("5/m")


@pytest.mark.parametrize("quota", [by_plan, ByPlan()], ids=["function", "object"])
def test_a_quota_may_be_a_function(quota: Callable[..., Any]) -> None:
    """A function of the request is kept, to be asked for each."""
    assert quota == Limit(quota).quota


def test_a_cost_may_be_a_function() -> None:
    """A function of the request is kept, to be asked for each."""
    assert by_size == Limit(FIVE, cost=by_size).cost


@pytest.mark.parametrize("quota", [5, None, 5.0, ["5/m"], Quota, Exempt, EXEMPT])
def test_a_quota_that_is_none_is_refused(quota: object) -> None:
    """What is neither a quota nor text nor a function fails at the declaration."""
    with pytest.raises(InvalidQuotaError, match="neither a quota nor text nor a func"):
        unchecked(quota)


@pytest.mark.parametrize("text", ["5 per fortnight", "1/s; 2/m", ""])
def test_text_that_makes_no_quota_is_refused(text: str) -> None:
    """A limit has one quota, and wrong text fails at the declaration."""
    with pytest.raises(InvalidQuotaError) as caught:
        Limit(text)

    assert text == caught.value.given


@pytest.mark.parametrize("key_func", ["ip", 5, str, ()])
def test_a_key_function_that_is_none_is_refused(key_func: object) -> None:
    """The error shows what was given and what to write."""
    with pytest.raises(
        ConfigurationError, match="Write for example key_func=client_ip"
    ):
        unchecked(FIVE, key_func=key_func)


@pytest.mark.parametrize("cost", [-1, True, 1.5, "1", None])
def test_a_cost_that_is_none_is_refused(cost: object) -> None:
    """A negative cost, which would be a refund, fails at the declaration."""
    with pytest.raises(
        ConfigurationError, match=f"not {cost!r}. Write for example cost"
    ):
        unchecked(FIVE, cost=cost)


@pytest.mark.parametrize("option", ["name", "bucket"])
@pytest.mark.parametrize(
    "text", ["", "täglich", "a\nb", "a\x7f", 5, b"daily"], ids=repr
)
def test_names_are_printable_ascii(option: str, text: object) -> None:
    """A name can go into a header field and a log as it is."""
    with pytest.raises(ConfigurationError, match=f"{option}=.* is not printable ASCII"):
        unchecked(FIVE, **{option: text})


@pytest.mark.parametrize("using", ["bucket", "TOKEN_BUCKET", "", 5, True, Algorithm])
def test_an_algorithm_that_is_not_there_is_refused(using: object) -> None:
    """The error lists what can be written."""
    with pytest.raises(ConfigurationError, match=r"Write one of Algorithm\.TOKEN"):
        unchecked(FIVE, using=using)


@pytest.mark.parametrize("using", Algorithm)
def test_every_algorithm_is_available(using: Algorithm) -> None:
    """Each can be chosen, by name too."""
    assert using is available(using)
    assert using is available(using.value)


@pytest.mark.parametrize("policy", ["local", "deny", "allow", None])
def test_a_limit_may_say_what_to_do_without_a_store(
    policy: OnStoreError | None,
) -> None:
    """It has one of three policies, or leaves it to the limiter."""
    assert policy == Limit(FIVE, on_store_error=policy).on_store_error


@pytest.mark.parametrize("policy", ["open", "", "Deny", 5, True, ["deny"]])
def test_another_policy_is_refused(policy: object) -> None:
    """The error lists what can be written."""
    with pytest.raises(
        ConfigurationError, match=r"is none\. Write 'local', 'deny' or 'allow'"
    ):
        unchecked(FIVE, on_store_error=policy)


def test_a_cost_above_the_capacity_is_refused() -> None:
    """A limit that no request could pass fails at the declaration."""
    with pytest.raises(
        ConfigurationError, match=r"costs more than the capacity of 5\."
    ):
        Limit("5/m", cost=6)


@pytest.mark.parametrize("using", Algorithm)
def test_what_is_advised_against_a_cost_above_the_capacity_is_accepted(
    using: Algorithm,
) -> None:
    """A bucket may have a burst, a window may not: it can be larger."""
    with pytest.raises(ConfigurationError) as told:
        Limit("5/m", using=using, cost=9)

    is_window = "raise its limit to 9" in str(told.value)
    assert is_window != ("Quota(…, burst=9)" in str(told.value))
    Limit("9/m" if is_window else "5/m burst 9", using=using, cost=9)


@pytest.mark.parametrize(
    "limit",
    [
        pytest.param(Limit("5/m", cost=5), id="the capacity itself"),
        pytest.param(Limit("5/m burst 6", cost=6), id="a burst"),
        pytest.param(Limit("0/m", cost=6), id="a zero quota, which is meant"),
        pytest.param(Limit(by_plan, cost=6), id="a quota that is not known yet"),
    ],
)
def test_a_cost_within_the_capacity_is_accepted(limit: Limit) -> None:
    """A cost is compared with the burst, where the quota is known."""
    assert limit.cost in {5, 6}


def test_a_limit_cannot_be_changed() -> None:
    """Setting a field of a limit raises."""
    limit: Any = Limit(FIVE)

    with pytest.raises(AttributeError):
        limit.cost = 2

    assert Limit(FIVE) == limit


def test_limits_are_compared_by_all_their_fields() -> None:
    """Equal limits are equal, and each option makes a difference."""
    limits = [
        Limit(FIVE),
        Limit("6/m"),
        Limit(FIVE, key_func=client_ip),
        Limit(FIVE, cost=2),
        Limit(FIVE, name="a"),
        Limit(FIVE, using=Algorithm.GCRA),
        Limit(FIVE, bucket="a"),
    ]

    assert len(limits) == len({*limits, Limit("5/m")})


# --- EXEMPT


def test_exempt_is_shown_as_it_is_written() -> None:
    """Its repr is its name."""
    assert "EXEMPT" == repr(EXEMPT)


def test_exempt_stays_one() -> None:
    """Copies and pickles of it are it."""
    pickled = pickle.loads(pickle.dumps(EXEMPT))  # noqa: S301

    assert EXEMPT is copy.copy(EXEMPT)
    assert EXEMPT is copy.deepcopy(EXEMPT)
    assert EXEMPT is pickled


# --- declarations


@pytest.mark.parametrize(
    ("throttle", "limits"),
    [
        pytest.param("5/m", [Limit(FIVE)], id="text"),
        pytest.param(FIVE, [Limit(FIVE)], id="quota"),
        pytest.param(Limit(FIVE, cost=2), [Limit(FIVE, cost=2)], id="limit"),
        pytest.param(by_plan, [Limit(by_plan)], id="function"),
        pytest.param("1/s; 100/h", [Limit("1/s"), Limit("100/h")], id="text of two"),
        pytest.param(
            ["1/s; 2/m", "3/h"], list(map(Limit, ("1/s", "2/m", "3/h"))), id="list"
        ),
        pytest.param(
            (FIVE, by_plan, Limit("1/s", name="a")),
            [Limit(FIVE), Limit(by_plan), Limit("1/s", name="a")],
            id="tuple",
        ),
        pytest.param(EXEMPT, [], id="exempt"),
    ],
)
def test_all_that_a_throttle_can_be(throttle: Throttle, limits: list[Limit]) -> None:
    """A declaration is one quota, in any form, or several."""
    assert limits == list(limits_of(throttle))


def test_options_are_for_each_quota() -> None:
    """The options of `@limit` go to every quota beside them."""
    limits = limits_of(["1/s; 2/m", FIVE, by_plan], cost=1, bucket="shared")

    assert [
        Limit(quota, cost=1, bucket="shared") for quota in ("1/s", "2/m", FIVE, by_plan)
    ] == list(limits)


def test_a_finished_limit_takes_no_options() -> None:
    """Options beside a `Limit` would be lost, so they are refused."""
    with pytest.raises(ConfigurationError, match=r"Write it in the Limit: .*cost=…"):
        limits_of(Limit(FIVE), cost=2)


@pytest.mark.parametrize("throttle", [[], ()])
def test_an_empty_list_is_refused(throttle: Throttle) -> None:
    """Nothing is not a way to write "no limit"."""
    with pytest.raises(ConfigurationError, match="Write EXEMPT if that is meant"):
        limits_of(throttle)


def test_exempt_stands_alone() -> None:
    """A list with `EXEMPT` in it contradicts itself."""
    throttle: Any = ["5/m", EXEMPT]

    with pytest.raises(ConfigurationError, match="EXEMPT stands alone"):
        limits_of(throttle)


@pytest.mark.parametrize(
    "throttle", ["5/m;", "", 5, None, {"5/m"}, {"5/m": 1}, b"5/m", [["5/m"]], [None]]
)
def test_what_is_no_throttle_is_refused(throttle: object) -> None:
    """A wrong type, or text with nothing after a semicolon, is an invalid quota."""
    declare: Any = limits_of

    with pytest.raises(InvalidQuotaError):
        declare(throttle)


@pytest.mark.parametrize(
    "throttle",
    [
        pytest.param(["5/m", "5/60s"], id="text"),
        pytest.param("5/m; 5/m", id="one text"),
        pytest.param([by_plan, by_plan], id="function"),
        pytest.param([Limit(FIVE, bucket="a")] * 2, id="limit"),
    ],
)
def test_one_limit_declared_twice_is_refused(throttle: Throttle) -> None:
    """An exact duplicate would change nothing but the number of counters."""
    with pytest.raises(ConfigurationError, match="is declared twice for the same key"):
        limits_of(throttle)


@pytest.mark.parametrize(
    "throttle",
    [
        pytest.param([Limit("5/m", name="a"), Limit("6/m", name="a")], id="given"),
        pytest.param([Limit("5/m", name="2"), "6/m"], id="position"),
        pytest.param(
            [Limit("5/m", name="2", bucket="b"), Limit("6/m", bucket="b")], id="bucket"
        ),
    ],
)
def test_two_limits_of_one_name_are_refused(throttle: Throttle) -> None:
    """Two limits that would have one key are an error, given or not."""
    with pytest.raises(ConfigurationError, match=r"Two limits are named '(a|2)'"):
        limits_of(throttle)


def test_limits_that_differ_are_distinct() -> None:
    """Equal quotas for different keys or buckets are two limits."""
    limits = [
        Limit(FIVE),
        Limit(FIVE, key_func=everyone),
        Limit(FIVE, bucket="a"),
        Limit(FIVE, name="again"),
    ]

    check_distinct(limits)

    assert ["1", "2", "3", "again"] == names_of(limits)


def test_a_limit_is_named_by_its_position() -> None:
    """Without a name, a limit is called by its place in the list."""
    limits = limits_of(["1/s", Limit("2/m", name="slow"), "3/h"])

    assert ["1", "slow", "3"] == names_of(limits)
    assert ["1", "slow", "3"] == slots_of(limits)


def test_a_place_in_a_bucket_does_not_depend_on_others() -> None:
    """In a shared bucket, only its own limits are counted."""
    shared = Limit("3/h", bucket="shared")

    assert ["1"] == slots_of([shared])
    assert ["1", "2", "1"] == slots_of([Limit("1/s"), Limit("2/m"), shared])


@pytest.mark.parametrize(
    ("limit", "text"),
    [
        pytest.param(Limit("5 per 60 s"), "5/m", id="quota"),
        pytest.param(Limit(by_plan), "by_plan", id="function"),
        pytest.param(Limit(ByPlan()), "dynamic", id="object"),
    ],
)
def test_a_limit_is_shown_as_text(limit: Limit, text: str) -> None:
    """A quota is shown as its text, a function by its name where it has one."""
    assert text == limit_text(limit)


def test_a_limit_that_costs_nothing_is_refused() -> None:
    """It would limit nobody, and there is a word for that."""
    with pytest.raises(ConfigurationError, match="Write EXEMPT"):
        Limit("5/m", cost=0)


def test_the_options_of_a_limit_are_the_same_everywhere() -> None:
    """Its fields, its constructor, and what `@limit` and others take by keyword."""
    fields = [each.name for each in dataclasses.fields(Limit)]

    assert fields == [*inspect.signature(Limit).parameters]
    assert fields[1:] == [*get_type_hints(LimitOptions)]
