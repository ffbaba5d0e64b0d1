"""Limits bound to a store, and the rules that they become."""

from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
from starlette.requests import Request
from starlette.types import Scope

from tests.clock import ManualClock
from throttled_views import (
    EXEMPT,
    Algorithm,
    Charge,
    ConfigurationError,
    InvalidAnswerError,
    InvalidKeyError,
    InvalidQuotaError,
    KeyFunc,
    Limit,
    MemoryStore,
    Quota,
    RateLimitState,
    Receipt,
    Throttle,
    Throttled,
    client_ip,
    everyone,
)
from throttled_views._rules import NOTHING_SOLVED, Rule
from throttled_views.results import Decision, result_of

FIVE = Quota.per_minute(5)  # one back every 12 s


SCOPE: Scope = {
    "type": "http",
    "method": "GET",
    "path": "/",
    "headers": [],
    "client": ("192.0.2.1", 50_000),
}
DECISION = Decision(
    limited=False, limit=5, remaining=4, reset_us=12_000_000, retry_us=0, at_us=7
)


def by_plan(request: Request) -> Quota:
    """Choose a quota."""
    return FIVE


def by_size(request: Request) -> int:
    """Tell a cost."""
    return 2


async def remaining(throttled: Throttled, key: str = "alice") -> int:
    """Return how many requests *key* could make now."""
    return (await throttled.peek(key)).state.remaining


async def left(throttled: Throttled, store: MemoryStore) -> list[int]:
    """Return how many requests alice could make under each of the limits."""
    charges = [
        Charge(rule.key("alice"), rule.limit.quota)
        for rule in throttled.rules
        if isinstance(rule.limit.quota, Quota)
    ]
    return [result.state.remaining for result in await store.peek(charges)]


# --- what it takes


@pytest.mark.parametrize(
    "throttle",
    ["5/m", FIVE, Limit(FIVE), ["5/m"], (FIVE,)],
    ids=["text", "quota", "limit", "list", "tuple"],
)
async def test_all_forms_of_a_quota_limit_alike(
    store: MemoryStore, throttle: Throttle
) -> None:
    """However a quota is written, it admits its burst and refuses the next."""
    throttled = Throttled(throttle, store=store)
    limited = [(await throttled.limit("alice")).limited for _ in range(6)]

    assert [False] * 5 + [True] == limited
    assert (Limit(FIVE),) == throttled.limits


async def test_it_works_alone() -> None:
    """Without a store it counts in one of its own."""
    first, second = Throttled("1/h"), Throttled("1/h")

    assert not (await first.limit("alice")).limited
    assert (await first.limit("alice")).limited
    assert not (await second.limit("alice")).limited


def test_exempt_is_no_limit() -> None:
    """There is nothing to check by hand where there is no limit."""
    with pytest.raises(ConfigurationError, match="Leave the check out"):
        Throttled(EXEMPT)


@pytest.mark.parametrize(
    "throttle",
    [by_plan, Limit(by_plan), Limit(FIVE, cost=by_size), ["1/s", by_plan]],
    ids=["quota", "limit", "cost", "list"],
)
def test_functions_of_the_request_are_refused(throttle: Throttle) -> None:
    """There is no request here that a function could be asked about."""
    with pytest.raises(ConfigurationError, match=r"for example Throttled\('5/m'\)"):
        Throttled(throttle)


def test_wrong_text_is_refused() -> None:
    """A quota that is none fails where it is written."""
    with pytest.raises(InvalidQuotaError):
        Throttled("5 per fortnight")


def test_an_algorithm_that_is_not_there_is_refused() -> None:
    """It fails where it is written."""
    using: Any = "leaky"

    with pytest.raises(ConfigurationError, match="using='leaky' is not available"):
        Throttled("5/m", using=using)


@pytest.mark.parametrize(
    ("throttle", "using"),
    [
        ("5/m", Algorithm.GCRA),
        (Limit("5/m", using=Algorithm.SLIDING_LOG), Algorithm.SLIDING_LOG),
    ],
    ids=["of all", "of the limit"],
)
async def test_an_algorithm_can_be_chosen(
    store: MemoryStore, throttle: Throttle, using: Algorithm
) -> None:
    """A limit's own algorithm is taken, else that of all."""
    result = await Throttled(throttle, store=store, using=Algorithm.GCRA).limit("alice")

    assert using == result.receipts[0].charge.algorithm


def test_it_is_shown_by_its_quotas() -> None:
    """Its repr lists the quotas."""
    assert "Throttled(1/s, 5/m burst 6)" == repr(Throttled("1/s; 5/m burst 6"))


# --- limit


async def test_a_result_tells_where_the_key_stands(store: MemoryStore) -> None:
    """The state is the one after the charge, the name that of the limit."""
    result = await Throttled(Limit(FIVE, name="api"), store=store).limit("alice", 2)

    assert (False, "api") == (result.limited, result.name)
    assert RateLimitState(5, 3, reset_after=24.0, retry_after=0.0) == result.state


async def test_who_waits_as_told_is_admitted(
    store: MemoryStore, clock: ManualClock
) -> None:
    """A refusal has the exact wait after which the same call passes."""
    throttled = Throttled(FIVE, store=store)
    await throttled.limit("alice", 5)
    refused = await throttled.limit("alice", 2)
    clock.advance(refused.state.retry_after or 0)

    assert 24.0 == refused.state.retry_after
    assert not (await throttled.limit("alice", 2)).limited


async def test_keys_are_limited_apart(store: MemoryStore) -> None:
    """What one key spends, another still has."""
    throttled = Throttled(FIVE, store=store)
    await throttled.limit("alice", 5)

    assert 5 == await remaining(throttled, "bob")


@pytest.mark.parametrize("method", [Throttled.limit, Throttled.peek, Throttled.reset])
@pytest.mark.parametrize("key", ["", None, 5, b"alice", ["alice"]])
async def test_a_key_that_is_none_is_refused(
    store: MemoryStore, method: Callable[..., Awaitable[object]], key: object
) -> None:
    """Empty text, which would be one big bucket, and other types are errors."""
    with pytest.raises(InvalidKeyError, match="The caller of Throttled gave") as caught:
        await method(Throttled(FIVE, store=store), key)

    assert key is caught.value.given


@pytest.mark.parametrize("method", [Throttled.limit, Throttled.peek])
@pytest.mark.parametrize("cost", [-1, True, 1.5, None])
async def test_a_cost_that_is_none_is_refused(
    store: MemoryStore, method: Callable[..., Awaitable[object]], cost: object
) -> None:
    """A negative cost is an error and never a refund."""
    throttled = Throttled(FIVE, store=store)

    with pytest.raises(ValueError, match="whole number of 0 or more"):
        await method(throttled, "alice", cost)

    assert 5 == await remaining(throttled)


async def test_a_cost_of_zero_takes_nothing(store: MemoryStore) -> None:
    """Nothing can be charged to anybody, an exhausted key too."""
    throttled = Throttled(FIVE, store=store)
    await throttled.limit("alice", 5)

    assert not (await throttled.limit("alice", 0)).limited
    assert 0 == await remaining(throttled)


async def test_a_cost_above_the_capacity_has_no_wait(store: MemoryStore) -> None:
    """What can never pass is refused, has no wait and leaves the key alone."""
    throttled = Throttled(FIVE, store=store)
    result = await throttled.limit("alice", 6)

    assert (True, None) == (result.limited, result.state.retry_after)
    assert 5 == await remaining(throttled)


async def test_costs_multiply(store: MemoryStore) -> None:
    """A call costs its units times what each limit takes for one."""
    throttled = Throttled([Limit("10/m", cost=3), Limit("9/h")], store=store)
    await throttled.limit("alice", 2)

    assert [4, 7] == await left(throttled, store)


async def test_several_limits_are_all_or_nothing(store: MemoryStore) -> None:
    """A call that one limit refuses charges none of them."""
    throttled = Throttled("2/m; 10/h", store=store)
    limited = [(await throttled.limit("alice")).limited for _ in range(5)]

    assert [False, False, True, True, True] == limited
    assert [0, 8] == await left(throttled, store)


@pytest.mark.parametrize(
    ("throttle", "cost", "name"),
    [
        pytest.param("10/m; 9/h", 1, "2", id="the nearest to exhaustion"),
        pytest.param("10/m; 9/h", 10, "2", id="the one that refuses"),
        pytest.param("1/s burst 3; 2/h", 3, "2", id="the one that refuses for ever"),
        pytest.param(
            [Limit("9/h", name="slow"), "10/m"], 1, "slow", id="by the name it has"
        ),
    ],
)
async def test_one_of_several_limits_speaks(
    store: MemoryStore, throttle: Throttle, cost: int, name: str
) -> None:
    """The result is of the limit that matters most, by its name or position."""
    throttled = Throttled(throttle, store=store)
    peeked = await throttled.peek("alice", cost)
    result = await throttled.limit("alice", cost)

    assert (name, name) == (peeked.name, result.name)


async def test_of_several_refusals_the_longest_wait_is_told(store: MemoryStore) -> None:
    """Who waits for the last of the limits is admitted by all of them."""
    throttled = Throttled("2/s; 2/h; 2/m", store=store)
    await throttled.limit("alice", 2)

    assert 1800.0 == (await throttled.limit("alice")).state.retry_after


# --- peek, reset, refund


async def test_a_peek_tells_what_a_call_would_be_answered(store: MemoryStore) -> None:
    """It says whether the cost would pass, and changes nothing."""
    throttled = Throttled(FIVE, store=store)
    await throttled.limit("alice", 3)
    passing, refused = (
        await throttled.peek("alice", 2),
        await throttled.peek("alice", 3),
    )

    assert (False, True) == (passing.limited, refused.limited)
    assert (2, 2) == (passing.state.remaining, refused.state.remaining)
    assert 12.0 == refused.state.retry_after
    assert ((), ()) == (passing.receipts, refused.receipts)


async def test_reset_forgets_a_key_under_all_limits(store: MemoryStore) -> None:
    """A key that is reset is as good as new, and others stay as they are."""
    throttled = Throttled("3/m; 5/h", store=store)
    await throttled.limit("alice", 3)
    await throttled.limit("bob", 1)
    await throttled.reset("alice")

    assert (3, 2) == (await remaining(throttled), await remaining(throttled, "bob"))
    assert 2 == len(store)


async def test_a_refund_gives_back_all_limits(store: MemoryStore) -> None:
    """What a call charged, of every limit and times its cost, comes back."""
    throttled = Throttled([Limit("9/m", cost=2), "9/h"], store=store)
    await throttled.limit("alice")
    await throttled.refund(await throttled.limit("alice", 2))

    assert [7, 8] == await left(throttled, store)


async def test_a_refusal_or_a_peek_has_nothing_to_refund(store: MemoryStore) -> None:
    """Only what was charged is given back."""
    throttled = Throttled(FIVE, store=store)
    await throttled.limit("alice", 3)
    await throttled.refund(await throttled.peek("alice"))
    await throttled.refund(await throttled.limit("alice", 3))

    assert 2 == await remaining(throttled)


@pytest.mark.parametrize(
    ("method", "argument"),
    [
        (Throttled.limit, "alice"),
        (Throttled.peek, "alice"),
        (Throttled.reset, "alice"),
        (Throttled.refund, result_of(DECISION)),
    ],
)
async def test_a_declaration_cannot_be_asked(
    method: Callable[..., Awaitable[object]], argument: object
) -> None:
    """What a view declares has no store before it is included, and says so."""
    declared = Throttled.declared([Limit(FIVE)])

    with pytest.raises(ConfigurationError, match=r"Throttled\(5/m\) is a declaration"):
        await method(declared, argument)


# --- keys


@pytest.mark.parametrize(
    ("one", "other", "shared"),
    [
        pytest.param(("5/m", "app"), (FIVE, "app"), True, id="equal quotas"),
        pytest.param((FIVE, "app"), ("5/h", "app"), False, id="other quotas"),
        pytest.param((FIVE, "app"), (FIVE, "shop"), False, id="other applications"),
        pytest.param(
            (FIVE, "app"),
            (Limit(FIVE, bucket="a"), "app"),
            False,
            id="a bucket and none",
        ),
        pytest.param(
            (Limit(FIVE, bucket="a"), "app"),
            (Limit(FIVE, bucket="b"), "app"),
            False,
            id="other buckets",
        ),
        pytest.param(
            (Limit(FIVE, bucket="a"), "app"),
            (["7/s", Limit(FIVE, bucket="a")], "app"),
            True,
            id="one bucket",
        ),
        pytest.param(
            (Limit(FIVE, name="a"), "app"),
            (Limit(FIVE, name="b"), "app"),
            False,
            id="other names",
        ),
        pytest.param(
            (Limit(FIVE, bucket="b|c"), "a"),
            (Limit(FIVE, bucket="c"), "a|*|b"),
            False,
            id="separators",
        ),
    ],
)
async def test_what_is_counted_together(
    store: MemoryStore,
    one: tuple[Throttle, str],
    other: tuple[Throttle, str],
    *,
    shared: bool,
) -> None:
    """On one store, equal quotas share their counts unless they are told apart."""
    first, second = (
        Throttled(throttle, store=store, prefix=prefix)
        for throttle, prefix in (one, other)
    )
    await first.limit("alice", 5)

    assert (0 if shared else 5) == await remaining(second)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param("a|b", "a", id="separator"),
        pytest.param("a" * 64, "a" * 65, id="digest"),
        pytest.param("\ud800", "\udc00", id="lone surrogates"),
        pytest.param("na\u00efve", "nai\u0308ve", id="normal forms"),
    ],
)
async def test_any_two_texts_are_two_keys(
    store: MemoryStore, one: str, other: str
) -> None:
    """Keys that look alike, or are long, are told apart."""
    throttled = Throttled("1/h", store=store)

    assert not (await throttled.limit(one)).limited
    assert not (await throttled.limit(other)).limited
    assert (await throttled.limit(one)).limited


# --- rules


def rule_of(limit: Limit, key_func: KeyFunc | None = client_ip) -> Rule:
    """Return the rule of *limit* on a handler."""
    return Rule(
        limit,
        name="1",
        slot="1",
        using=Algorithm.TOKEN_BUCKET,
        key_func=key_func,
        prefix="app",
        method="GET+HEAD",
        route="shop.Items.get",
    )


async def charge_of(rule: Rule) -> Charge | None:
    """Return what a request is charged by *rule*, as a plan asks for it."""
    principal = await rule.principal(SCOPE, NOTHING_SOLVED)
    if principal is None:
        return None
    return await rule.charge(principal, SCOPE, NOTHING_SOLVED)


async def test_a_rule_charges_the_client_of_a_request() -> None:
    """Its key has prefix, methods, route, client and the place of the limit."""
    key = "app|GET%2BHEAD|shop.Items.get|{192.0.2.1}|1"

    assert Charge(key, FIVE, cost=2) == await charge_of(rule_of(Limit(FIVE, cost=2)))


async def test_a_bucket_replaces_methods_and_route() -> None:
    """A shared bucket does not know the handlers that share it."""
    charge = await charge_of(rule_of(Limit(FIVE, bucket="writes")))

    assert charge is not None
    assert "app|%2A|writes|{192.0.2.1}|1" == charge.key


@pytest.mark.parametrize(
    ("using", "end"),
    [
        (Algorithm.GCRA, "|1"),
        (Algorithm.LEAKY_BUCKET, "|1"),
        (Algorithm.FIXED_WINDOW, "|1%C2%B7fixed_window"),
        (Algorithm.SLIDING_WINDOW, "|1%C2%B7sliding_window"),
        (Algorithm.SLIDING_LOG, "|1%C2%B7sliding_log"),
    ],
)
async def test_what_is_counted_in_another_way_has_another_key(
    using: Algorithm, end: str
) -> None:
    """The three names of the bucket are one count, and each window is its own."""
    charge = await charge_of(rule_of(Limit(FIVE, using=using)))

    assert charge is not None
    assert f"app|GET%2BHEAD|shop.Items.get|{{192.0.2.1}}{end}" == charge.key


async def test_no_text_opens_or_closes_the_braces_of_a_key() -> None:
    """What a cluster hashes is the client, whatever braces it was given."""
    charge = await charge_of(
        rule_of(Limit(FIVE, bucket="{b}"), returning("}{", later=False))
    )

    assert charge is not None
    assert "app|%2A|%7Bb%7D|{%7D%7B}|1" == charge.key


async def test_the_key_function_of_a_limit_goes_first() -> None:
    """A limit's own key function is asked instead of the handler's."""
    charge = await charge_of(rule_of(Limit(FIVE, key_func=everyone)))

    assert charge is not None
    assert "app|GET%2BHEAD|shop.Items.get|{everyone}|1" == charge.key


def returning(value: object, *, later: bool) -> Any:  # noqa: ANN401
    """Return a function of the request, sync or async, that returns *value*."""

    async def asynchronous(request: Request) -> object:
        return value

    def synchronous(request: Request) -> object:
        return value

    return asynchronous if later else synchronous


@pytest.mark.parametrize("later", [True, False], ids=["async", "sync"])
class TestFunctionsOfTheRequest:
    """Sync and async functions choose keys, quotas and costs for each request."""

    async def test_a_key_function_names_the_client(self, *, later: bool) -> None:
        """What it returns is who is charged."""
        charge = await charge_of(rule_of(Limit(FIVE), returning("al|ice", later=later)))

        assert charge is not None
        assert "app|GET%2BHEAD|shop.Items.get|{al%7Cice}|1" == charge.key

    async def test_no_key_is_no_limit(self, *, later: bool) -> None:
        """A key function that returns None says that the limit does not apply."""
        rule = rule_of(Limit(FIVE), returning(None, later=later))

        assert None is await charge_of(rule)

    @pytest.mark.parametrize("key", ["", 5, b"alice", False])
    async def test_a_wrong_key_is_an_error(self, key: object, *, later: bool) -> None:
        """What is no key is neither everybody's nor nobody's."""
        rule = rule_of(Limit(FIVE), returning(key, later=later))

        with pytest.raises(InvalidKeyError, match="synchronous gave"):
            await charge_of(rule)

    @pytest.mark.parametrize("quota", [FIVE, "5/m"], ids=["quota", "text"])
    async def test_a_quota_function_chooses(
        self, quota: object, *, later: bool
    ) -> None:
        """What it returns, a quota or its text, is what the client is held to."""
        charge = await charge_of(rule_of(Limit(returning(quota, later=later))))

        assert charge is not None
        assert FIVE == charge.quota

    async def test_a_burst_is_no_answer_where_a_window_counts(
        self, *, later: bool
    ) -> None:
        """A quota that a window cannot keep is told when it is chosen."""
        limit = Limit(
            returning("5/m burst 9", later=later), using=Algorithm.SLIDING_LOG
        )

        with pytest.raises(InvalidAnswerError, match=r"It is not a quota: .* a burst"):
            await charge_of(rule_of(limit))

    async def test_no_quota_is_no_limit(self, *, later: bool) -> None:
        """A quota function says by EXEMPT that the limit does not apply."""
        rule = rule_of(Limit(returning(EXEMPT, later=later)))

        assert None is await charge_of(rule)

    @pytest.mark.parametrize("quota", ["5 per fortnight", "1/s; 2/m", 5, "", None])
    async def test_a_wrong_quota_is_an_error(
        self, quota: object, *, later: bool
    ) -> None:
        """What is no quota does not mean that there is none."""
        rule = rule_of(Limit(returning(quota, later=later)))

        with pytest.raises(InvalidAnswerError, match="It is not a quota"):
            await charge_of(rule)

    @pytest.mark.parametrize("cost", [0, 1, 100])
    async def test_a_cost_function_tells(self, cost: int, *, later: bool) -> None:
        """What it returns is charged, more than the capacity too."""
        charge = await charge_of(
            rule_of(Limit(FIVE, cost=returning(cost, later=later)))
        )

        assert charge is not None
        assert cost == charge.cost

    @pytest.mark.parametrize("cost", [-1, True, 1.5, None])
    async def test_a_wrong_cost_is_an_error(self, cost: object, *, later: bool) -> None:
        """What is no cost is neither free nor a refund."""
        rule = rule_of(Limit(FIVE, cost=returning(cost, later=later)))

        with pytest.raises(ValueError, match="whole number of 0 or more"):
            await charge_of(rule)


@pytest.mark.parametrize("option", ["key", "quota", "cost"])
async def test_what_nobody_solved_is_an_error(option: str) -> None:
    """A function of more than the connection is not called without what it takes."""

    def function(user: str) -> Any:  # noqa: ANN401
        return user

    limits = {
        "key": Limit(FIVE, key_func=function),
        "quota": Limit(function),
        "cost": Limit(FIVE, cost=function),
    }
    rule = rule_of(limits[option])

    assert rule.is_late
    with pytest.raises(ConfigurationError, match="needs FastAPI to solve what it"):
        await charge_of(rule)


def test_a_rule_makes_results_of_decisions() -> None:
    """An admission has its name and a receipt, a refusal nothing to give back."""
    rule, charge = rule_of(Limit(FIVE, cost=2)), Charge("k", FIVE, cost=2)
    refused = DECISION._replace(limited=True)

    assert result_of(DECISION, "1", (Receipt(charge, 7),)) == rule.result("k", DECISION)
    assert result_of(refused, "1") == rule.result("k", refused)


def test_who_gives_a_url_for_a_store_is_told_what_takes_it() -> None:
    """It is not the memory store that was meant."""
    with pytest.raises(ConfigurationError, match=r"Write for example store=RedisStore"):
        Throttled("5/m", store=cast("MemoryStore", "redis://localhost"))


def test_a_rule_can_count_for_a_template() -> None:
    """It is one object for each; one in a bucket counts there, wherever it is."""
    rule, shared = rule_of(Limit(FIVE)), rule_of(Limit(FIVE, bucket="all"))

    assert rule.at("/items") is rule.at("/items") is not rule.at("/others")
    assert "app|GET%2BHEAD|%2Fitems|{alice}|1" == rule.at("/items").key("alice")
    assert shared.at("/items") is shared


WRONG_ARGUMENTS: dict[str, tuple[dict[str, Any], str]] = {
    "a store class": ({"store": MemoryStore}, "is no store"),
    "no store": ({"store": {}}, "is no store"),
    "a number as prefix": ({"prefix": 5}, "is no text"),
}


@pytest.mark.parametrize(
    ("arguments", "reason"), WRONG_ARGUMENTS.values(), ids=WRONG_ARGUMENTS
)
def test_a_wrong_argument_is_refused_at_once(
    arguments: dict[str, Any], reason: str
) -> None:
    """And not by the first request."""
    with pytest.raises(ConfigurationError, match=f"{reason}. Write for example"):
        Throttled("5/m", **arguments)
