"""`Limiter`: what the routes of an application share."""

from collections.abc import Callable
from typing import Any

import pytest
from fastapi import FastAPI, Request

from tests.asgi import Relay, answers, app_of, fields_of, statuses
from tests.ways import WAYS, Way
from throttled_views import (
    EXEMPT,
    Algorithm,
    ConfigurationError,
    InvalidQuotaError,
    Limit,
    Limiter,
    MemoryStore,
    Quota,
    RegistrationError,
    Throttle,
    ThrottledRouter,
    ViewDefinitionError,
    client_ip,
    everyone,
)


async def hello() -> str:
    """Be a handler."""
    return "hello"


async def other() -> str:
    """Be another handler."""
    return "other"


def by_many_things(request: Request, *tenants: str) -> str:
    """Want more than can be told."""
    return f"{request.url}{tenants}"


# --- how it is made -------------------------------------------------------------------

UNCHECKED: Any = "wrong"
NOTHING: Any = None

WRONG: dict[str, tuple[Callable[[], Limiter], type[Exception], str]] = {
    "a default that is no quota": (
        lambda: Limiter("5/fortnight"),
        InvalidQuotaError,
        "Write '<limit>/<period>'",
    ),
    "an empty default": (lambda: Limiter([]), ConfigurationError, "Write EXEMPT if"),
    "a default by a function that wants too much": (
        lambda: Limiter(Limit("5/m", key_func=by_many_things)),
        ConfigurationError,
        r"Write 'def .*\(request: Request\)'",
    ),
    "a quota function that wants too much": (
        lambda: Limiter(by_many_things),
        ConfigurationError,
        r"The quota function by_many_things .* 'tenants' stands for any number",
    ),
    "a cost function that wants too much": (
        lambda: Limiter(Limit("5/m", cost=len)),
        ConfigurationError,
        r"The cost function len cannot be solved: its parameter 'obj' can only",
    ),
    "a key function that wants too much": (
        lambda: Limiter("5/m", key_func=by_many_things),
        ConfigurationError,
        r"The key function by_many_things .* 'tenants' stands for any number",
    ),
    "an algorithm that is not there": (
        lambda: Limiter("5/m", using=UNCHECKED),
        ConfigurationError,
        "Write one of Algorithm.TOKEN_BUCKET",
    ),
    "a policy that is not there": (
        lambda: Limiter("5/m", on_store_error=UNCHECKED),
        ConfigurationError,
        "on_store_error='wrong' is none. Write 'local', 'deny' or 'allow'",
    ),
    "a switch that is a text": (
        lambda: Limiter("5/m", enabled=UNCHECKED),
        ConfigurationError,
        "enabled='wrong' is neither True nor False. Write enabled=True or enabled=F",
    ),
    "a switch that is not there": (
        lambda: Limiter("5/m", enabled=NOTHING),
        ConfigurationError,
        "enabled=None is neither True nor False",
    ),
    "problem details by a text": (
        lambda: Limiter("5/m", problem_details=UNCHECKED),
        ConfigurationError,
        "problem_details='wrong' is neither .* Write problem_details=True or",
    ),
}


@pytest.mark.parametrize(("make", "error", "says"), WRONG.values(), ids=WRONG)
def test_a_wrong_argument_is_refused_at_once(
    make: Callable[[], Limiter], error: type[Exception], says: str
) -> None:
    """What cannot work fails where it is written, and says what to write instead."""
    with pytest.raises(error, match=says):
        make()


def test_the_defaults_are_what_one_would_expect() -> None:
    """A limiter without arguments limits by address, in memory, under our prefix."""
    limiter = Limiter()

    assert limiter.default is None
    assert isinstance(limiter.store, MemoryStore)
    assert Algorithm.TOKEN_BUCKET is limiter.using
    assert client_ip is limiter.key_func
    assert "throttled_views" == limiter.prefix
    assert limiter.enabled


def test_limiters_do_not_share_a_store_by_themselves() -> None:
    """Each limiter that is given no store has one of its own."""
    assert Limiter().store is not Limiter().store


@pytest.mark.parametrize(
    "using", [Algorithm.TOKEN_BUCKET, Algorithm.GCRA, Algorithm.LEAKY_BUCKET]
)
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
async def test_every_algorithm_that_is_there_limits(way: Way, using: Algorithm) -> None:
    """The three names of the one kernel admit the same."""
    app = way(Limiter("2/h", using=using), hello)

    assert [200, 200, 429] == await statuses(app, *["GET /"] * 3)


NO_QUOTA: dict[str, Callable[[Limiter], object]] = {
    "limit": lambda limiter: limiter.limit(),
    "dependency": lambda limiter: limiter.dependency(),
    "throttled": lambda limiter: limiter.throttled(),
}


@pytest.mark.parametrize("use", NO_QUOTA.values(), ids=NO_QUOTA)
def test_without_a_default_a_quota_is_needed(use: Callable[[Limiter], object]) -> None:
    """Nothing is unlimited because somebody forgot to say to what it is limited."""
    with pytest.raises(ConfigurationError, match="the limiter has no default"):
        use(Limiter())


# --- enabled --------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
async def test_a_limiter_that_is_not_enabled_limits_nothing(way: Way) -> None:
    """Nothing is counted, refused or told."""
    app = way(Limiter("1/h", enabled=False), hello)

    received = await answers(app, *["GET /"] * 3)

    assert [(200, {})] * 3 == [
        (answer.status_code, fields_of(answer)) for answer in received
    ]


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
async def test_it_can_be_switched_at_any_time(way: Way) -> None:
    """What was counted before it was switched off still counts afterwards."""
    limiter = Limiter("2/h")
    app = way(limiter, hello)

    assert [200] == await statuses(app, "GET /")
    limiter.enabled = False
    assert [200, 200] == await statuses(app, "GET /", "GET /")
    limiter.enabled = True
    assert [200, 429] == await statuses(app, "GET /", "GET /")


def test_it_is_switched_by_true_and_false_alone() -> None:
    """A text of the environment, of which "0" is on and none is off, is refused."""
    limiter = Limiter("2/h")

    with pytest.raises(ConfigurationError, match="enabled='wrong' is neither True"):
        limiter.enabled = UNCHECKED
    assert limiter.enabled


# --- what is shared -------------------------------------------------------------------


def apps_of(
    store: MemoryStore, prefix: str, other_prefix: str
) -> tuple[FastAPI, FastAPI]:
    """Return two applications on one store, as if they were two processes."""
    apps: list[FastAPI] = []
    for each in (prefix, other_prefix):
        router = ThrottledRouter(Limiter("1/h", store=store, prefix=each))
        router.add_api_route("/", hello)
        apps.append(app_of(router))
    return apps[0], apps[1]


async def test_a_prefix_keeps_applications_apart(store: MemoryStore) -> None:
    """Two applications with functions of the same name may use one store."""
    one, two = apps_of(store, "one", "two")

    assert [200, 429] == await statuses(one, "GET /", "GET /")
    assert [200, 429] == await statuses(two, "GET /", "GET /")


async def test_processes_of_one_application_share_counts(store: MemoryStore) -> None:
    """With one prefix, one store and one function there is one quota."""
    one, two = apps_of(store, "one", "one")

    assert [200] == await statuses(one, "GET /")
    assert [429] == await statuses(two, "GET /")


@pytest.mark.parametrize("prefix", ["a", "a|GET", "", "%7C", "ä{b}"])
async def test_any_text_is_a_prefix(prefix: str, store: MemoryStore) -> None:
    """It is encoded in keys, so it cannot imitate another part of them."""
    one, two = apps_of(store, prefix, f"{prefix}|")

    assert [200, 200, 429, 429] == [
        *await statuses(one, "GET /"),
        *await statuses(two, "GET /"),
        *await statuses(one, "GET /"),
        *await statuses(two, "GET /"),
    ]


# --- buckets --------------------------------------------------------------------------


async def test_a_bucket_is_shared_by_handlers() -> None:
    """All who name it draw from it, by whatever method and path."""
    limiter = Limiter()
    router = ThrottledRouter(limiter)
    router.add_api_route("/", limiter.limit("2/h", bucket="shared")(hello))
    router.add_api_route(
        "/other", limiter.limit("2/h", bucket="shared")(other), methods=["POST"]
    )

    assert [200, 200, 429, 429] == await statuses(
        app_of(router), "GET /", "POST /other", "GET /", "POST /other"
    )


async def test_a_bucket_is_shared_whatever_else_handlers_are_limited_to() -> None:
    """Its limit may be the first of one handler and the second of another."""
    limiter = Limiter()
    shared = Limit("2/h", bucket="shared")
    router = ThrottledRouter(limiter)
    router.add_api_route("/", limiter.limit(shared)(hello))
    router.add_api_route("/other", limiter.limit(["50/h", shared])(other))

    assert [200, 200, 429, 429] == await statuses(
        app_of(router), "GET /", "GET /other", "GET /", "GET /other"
    )


def test_a_default_that_its_algorithm_cannot_honour_is_refused() -> None:
    """A burst means nothing to a window, also where the default is not used yet."""
    with pytest.raises(ConfigurationError, match="5/m burst 10 has a burst"):
        Limiter("5/m burst 10", using=Algorithm.FIXED_WINDOW)


async def test_a_default_with_a_bucket_is_for_all_handlers_together() -> None:
    """So an application can be limited as a whole."""
    router = ThrottledRouter(Limiter(Limit("2/h", bucket="all", key_func=everyone)))
    router.add_api_route("/", hello)
    router.add_api_route("/other", other)
    app = app_of(router)

    assert [200, 200] == await statuses(app, "GET /", "GET /other")
    assert [429, 429] == await statuses(app, "GET /", "GET /other", client="192.0.2.2")


def test_a_bucket_has_one_quota() -> None:
    """Whoever gives it another one is told both, and what to do."""
    limiter = Limiter()
    router = ThrottledRouter(limiter)
    router.add_api_route("/", limiter.limit("2/h", bucket="shared")(hello))

    with pytest.raises(
        RegistrationError,
        match=r"bucket 'shared': it is held to 2/h by token_bucket in one place and "
        r"to 3/h by token_bucket in another\. Give both the same",
    ):
        router.add_api_route("/other", limiter.limit("3/h", bucket="shared")(other))


def test_a_bucket_is_counted_in_one_way() -> None:
    """Who counts it by a window, too, is told; names of one algorithm are one way."""
    limiter = Limiter(using=Algorithm.GCRA)
    router = ThrottledRouter(limiter)
    router.add_api_route("/", limiter.limit("2/h", bucket="shared")(hello))
    limiter.throttled("2/h", bucket="shared", using=Algorithm.LEAKY_BUCKET)

    with pytest.raises(RegistrationError, match="by gcra in one place and to 2/h by"):
        limiter.throttled("2/h", bucket="shared", using=Algorithm.FIXED_WINDOW)


async def test_a_bucket_may_have_quotas_that_are_chosen_by_functions() -> None:
    """What a function will choose is not known beforehand, and its counter is kept."""

    def two(_request: Request) -> str:
        return "2/h"

    limiter = Limiter()
    router = ThrottledRouter(limiter)
    router.add_api_route("/", limiter.limit("2/h", bucket="shared")(hello))
    router.add_api_route("/other", limiter.limit(two, bucket="shared")(other))

    assert [200, 200, 429, 429] == await statuses(
        app_of(router), "GET /", "GET /other", "GET /", "GET /other"
    )


# --- by hand --------------------------------------------------------------------------


async def test_throttled_checks_by_hand(store: MemoryStore) -> None:
    """What is no route is limited by asking."""
    throttled = Limiter(store=store).throttled("2/h")

    results = [await throttled.limit("alice") for _ in range(3)]

    assert [False, False, True] == [result.limited for result in results]
    assert not (await throttled.limit("bob")).limited


async def test_throttled_has_the_default_of_the_limiter() -> None:
    """Without a quota it is held to what handlers are held to."""
    throttled = Limiter("1/h").throttled()

    assert [Limit(Quota.per_hour(1))] == [*throttled.limits]
    assert not (await throttled.limit("alice")).limited
    assert (await throttled.limit("alice")).limited


async def test_throttled_takes_the_options_of_a_limit() -> None:
    """The cost of the limit is charged for each unit."""
    throttled = Limiter("100/h").throttled("6/h", cost=2, name="mails")

    result = await throttled.limit("alice", cost=2)

    assert ("mails", 2) == (result.name, result.state.remaining)


async def test_throttled_counts_in_the_store_of_the_limiter() -> None:
    """Its keys have the limiter's prefix, and its algorithm."""
    store = Relay()
    limiter = Limiter(store=store, prefix="mine", using=Algorithm.GCRA)

    await limiter.throttled("2/h").limit("alice")

    ((charge,),) = store.calls
    assert (Quota.per_hour(2), Algorithm.GCRA) == (charge.quota, charge.algorithm)
    assert charge.key.startswith("mine|")


async def test_throttled_and_a_route_can_share_a_bucket() -> None:
    """A key given by hand is what a key function would have named."""
    limiter = Limiter()
    app = FastAPI()
    app.add_api_route("/", limiter.limit("1/h", bucket="shared")(hello))

    await limiter.throttled("1/h", bucket="shared").limit("192.0.2.1")

    assert [429] == await statuses(app, "GET /", client="192.0.2.1")
    assert [200] == await statuses(app, "GET /", client="192.0.2.2")


def once(_request: Request) -> str:
    """Choose a quota."""
    return "1/h"


def one(_request: Request) -> int:
    """Tell a cost."""
    return 1


NEEDS_A_REQUEST: dict[str, tuple[Throttle, str]] = {
    "a quota function": (once, "A quota or cost function needs a request"),
    "a cost function": (Limit("5/h", cost=one), "A quota or cost function needs a"),
    "no limit": (EXEMPT, "EXEMPT"),
}


@pytest.mark.parametrize(
    ("throttle", "says"), NEEDS_A_REQUEST.values(), ids=NEEDS_A_REQUEST
)
def test_throttled_needs_limits_that_are_known_without_a_request(
    throttle: Throttle, says: str
) -> None:
    """There is no request to ask, and no check that allows everything."""
    with pytest.raises(ConfigurationError, match=says):
        Limiter().throttled(throttle)


WRONG_ARGUMENTS: dict[str, dict[str, Any]] = {
    "text as key function": {"key_func": "ip"},
    "text as headers": {"headers": "X-RateLimit"},
    "a store class": {"store": MemoryStore},
    "a number as prefix": {"prefix": 5},
}


@pytest.mark.parametrize("arguments", WRONG_ARGUMENTS.values(), ids=WRONG_ARGUMENTS)
def test_an_argument_of_a_wrong_type_is_refused_at_once(
    arguments: dict[str, Any],
) -> None:
    """It fails where it is written, with what to write instead."""
    with pytest.raises(ConfigurationError, match="Write "):
        Limiter(**arguments)


def test_exempt_is_no_limit_of_a_function() -> None:
    """There is another decorator for that."""
    with pytest.raises(ViewDefinitionError, match=r"Write @limiter\.exempt"):
        Limiter().limit(EXEMPT)(hello)


def test_what_is_checked_by_hand_shares_buckets_too() -> None:
    """A bucket is held to one quota, whoever charges it."""
    limiter = Limiter()
    limiter.throttled("5/m", bucket="jobs")

    with pytest.raises(RegistrationError, match="bucket 'jobs': it is held to 5/m"):
        limiter.throttled("9/m", bucket="jobs")
