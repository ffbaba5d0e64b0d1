"""
What users write, as type checkers must see it.

Checked by mypy and pyright, and never run.
"""

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from datetime import timedelta
from typing import Annotated, Any, Generic, TypeVar, assert_type

import httpx
from fastapi import APIRouter, Depends, FastAPI, HTTPException, Request, Response
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import StreamingResponse
from fastapi.testclient import TestClient
from opentelemetry.metrics import get_meter_provider
from prometheus_client import CollectorRegistry
from pydantic import BaseModel
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp

from throttled_views import (
    EXEMPT,
    EXPOSED_HEADERS,
    LEGACY_HEADERS,
    Algorithm,
    AuditedLimit,
    AuditedRoute,
    Charge,
    CheckedLimit,
    CheckEvent,
    CheckOutcome,
    CheckPhase,
    ClientIP,
    ConfigurationError,
    CostFunc,
    CurrentRateLimit,
    HeaderPolicy,
    Hook,
    IETFHeaders,
    InvalidQuotaError,
    KeyFunc,
    KeyParts,
    Limit,
    LimitedError,
    Limiter,
    MemoryStore,
    OnStoreError,
    Quota,
    QuotaFunc,
    RateLimitContext,
    RateLimitExceededError,
    RateLimitHeaderPolicy,
    RateLimitMiddleware,
    RateLimitResult,
    RateLimitState,
    Receipt,
    RefundWhen,
    RegistrationError,
    RouteKey,
    Store,
    StoreStateEvent,
    StoreUnavailableError,
    Throttle,
    Throttled,
    ThrottledRouter,
    ThrottledView,
    ThrottledViewsError,
    ViewDefinitionError,
    audit,
    by_endpoint,
    by_template,
    client_ip,
    compose_key,
    document_limits,
    everyone,
    exempt,
    first_of,
    get_remote_address,
    header_key,
    limit,
    path_key,
    rate_limit_exceeded_handler,
    route,
)
from throttled_views import Exempt as NoLimit
from throttled_views.contrib.otel import REFUSALS, OTelHook
from throttled_views.contrib.prometheus import PrometheusHook
from throttled_views.stores.redis import RedisStore
from throttled_views.stores.statistics import Measured, StoreStatistics
from throttled_views.testing import (
    ManualClock,
    StoreContract,
    assert_throttled,
    no_limits,
)

# Values -------------------------------------------------------------------------

assert_type(Quota(10, timedelta(seconds=1)), Quota)
assert_type(Quota(10, 0.5, burst=20), Quota)
assert_type(Quota.per_second(10), Quota)
assert_type(Quota.per_minute(10, burst=20), Quota)
assert_type(Quota.per_hour(10), Quota)
assert_type(Quota.per_day(10), Quota)
assert_type(Quota.per_week(10), Quota)
assert_type(Quota.parse("100/m"), Quota)
assert_type(Quota.parse("100/m").limit, int)
assert_type(Quota.parse("100/m").period, timedelta)
assert_type(str(Quota.parse("100/m")), str)


class Settings(BaseModel):
    """A quota is a field like any other."""

    quota: Quota = Quota.per_minute(10)


assert_type(Settings().quota, Quota)

no_limit: Throttle = EXEMPT
quota_or_text: Sequence[Throttle] = ["5/m", Quota.per_day(5), Limit("5/m")]
several: Throttle = ["5/m", Quota.per_day(5), Limit("5/m", name="burst")]
algorithm: Algorithm = Algorithm.GCRA
in_windows: Throttle = [
    Limit("5/s", using=Algorithm.FIXED_WINDOW, on_store_error="deny"),
    Limit("100/h", using=Algorithm.SLIDING_WINDOW, on_store_error="local"),
    Limit("5/d", using=Algorithm.SLIDING_LOG, on_store_error="allow"),
]
algorithm_is_text: str = Algorithm.LEAKY_BUCKET


def results_are_read_through_their_attributes(result: RateLimitResult) -> None:
    """A result and its state have plain attributes."""
    assert_type(result.limited, bool)
    assert_type(result.name, str)
    assert_type(result.state, RateLimitState)
    assert_type(result.state.limit, int)
    assert_type(result.state.remaining, int)
    assert_type(result.state.reset_after, float)
    assert_type(result.state.retry_after, float | None)


# Keys ---------------------------------------------------------------------------


def sync_key(request: Request) -> str:
    """Be a synchronous key function."""
    return request.headers.get("X-Tenant", "none")


async def async_key(request: Request) -> str | None:
    """Be an asynchronous key function."""
    return request.headers.get("X-Tenant")


def connection_key(connection: HTTPConnection) -> str:
    """Be a key function for sockets too."""
    return connection.url.path


# `KeyFunc` takes any parameters, so pyright wants to be told those of a lambda.
lambdas: list[Callable[[Request], str]] = [lambda request: request.url.path]

all_kinds_of_keys: list[KeyFunc] = [
    sync_key,
    async_key,
    connection_key,
    client_ip,
    get_remote_address,
    everyone,
    ClientIP(trusted_proxies=["10.0.0.0/8"], header="Forwarded", ipv6_prefix=56),
    header_key("X-API-Key"),
    header_key("X-API-Key", otherwise=None),
    path_key("tenant_id"),
    first_of(path_key("tenant_id"), async_key, client_ip),
    *lambdas,
]

assert_type(compose_key(KeyParts("GET", "app.items", "alice")), str)


def client_ip_is_a_text(request: Request) -> None:
    """Other key functions can fall back to the address."""
    assert_type(client_ip(request), str)


# Stores -------------------------------------------------------------------------

is_a_store: type[Store] = MemoryStore
store: Store = MemoryStore(max_keys=1_000, clock=lambda: 0)


async def a_store_answers_each_charge(store: Store) -> None:
    """Charges go in, results come out."""
    charges = [Charge("alice", Quota.per_second(1), Algorithm.TOKEN_BUCKET, 1)]
    assert_type(await store.acquire(charges), Sequence[RateLimitResult])
    assert_type(await store.peek(charges), Sequence[RateLimitResult])
    await store.reset(["alice"])
    await store.aclose()


async def limits_by_hand(limiter: Limiter) -> None:
    """A job or a socket counts with a Throttled."""
    throttled = limiter.throttled("5/m", key_func=None)
    assert_type(throttled, Throttled)
    assert_type(Throttled("5/m"), Throttled)
    Throttled(Quota.per_minute(5), using=Algorithm.GCRA, store=MemoryStore())

    result = await throttled.limit("alice", cost=2)
    assert_type(result, RateLimitResult)
    assert_type(await throttled.peek("alice"), RateLimitResult)
    await throttled.reset("alice")
    await throttled.refund(result)


# Functions ----------------------------------------------------------------------

limiter = Limiter("100/m", store=MemoryStore(), using=Algorithm.GCRA, key_func=sync_key)
Limiter(headers=LEGACY_HEADERS, enabled=False, prefix="shop")
Limiter(headers=RateLimitHeaderPolicy(limit="X-Limit"))
Limiter(headers=IETFHeaders(), problem_details=True)
Limiter(headers=None)
assert_type(EXPOSED_HEADERS, tuple[str, ...])
assert_type(LEGACY_HEADERS.names, tuple[str, ...])
Limiter("5/m", using=Algorithm.FIXED_WINDOW, on_store_error="deny")
Limiter(on_store_error="local")
Limiter(on_store_error="allow")

T = TypeVar("T")


@limiter.limit("5/m")
async def none() -> int:
    """Take nothing."""
    return 0


@limiter.limit(Quota.per_minute(5))
async def one(first: int) -> str:
    """Take one."""
    return str(first)


@limiter.limit(Limit("5/m", cost=2), key_func=async_key)
async def two(first: int, second: str = "") -> dict[str, int]:
    """Take two."""
    return {second: first}


@limiter.limit(["5/s", "100/h"], cost=2)
async def three(first: int, /, second: str, *, third: bytes) -> Response:
    """Take three, in three ways."""
    return Response(third * first, media_type=second)


@limiter.limit(key_func=lambdas[0])
async def four(first: int, second: int, third: int, fourth: int) -> StreamingResponse:
    """Take four."""
    return StreamingResponse(iter([str(first + second + third + fourth)]))


@limiter.limit("5/m", using=Algorithm.SLIDING_WINDOW, on_store_error="allow")
async def keyword_only(*, name: str) -> str:
    """Take it by name."""
    return name


@limiter.limit("5/m")
async def generic(value: T) -> list[T]:
    """Give it back in a list."""
    return [value]


@limiter.exempt
async def unlimited(value: int) -> int:
    """Be outside of all limits."""
    return value


async def decorated_functions_keep_their_signatures() -> None:
    """What was decorated is called as before."""
    assert_type(await none(), int)
    assert_type(await one(1), str)
    assert_type(await two(1, second=""), dict[str, int])
    assert_type(await three(1, "", third=b""), Response)
    assert_type(await four(1, 2, 3, fourth=4), StreamingResponse)
    assert_type(await keyword_only(name=""), str)
    assert_type(await generic(1), list[int])
    assert_type(await generic(""), list[str])
    assert_type(await unlimited(1), int)
    coroutine: Coroutine[Any, Any, int] = none()
    await coroutine
    callback: Callable[[int], Awaitable[str]] = one
    await callback(1)


app = FastAPI(dependencies=[Depends(limiter.dependency("5/m", key_func=sync_key))])


# Views --------------------------------------------------------------------------


class Item(BaseModel):
    """Something to serve."""

    name: str


class Base(ThrottledView):
    """Annotated once, overridden with whatever a throttle can be."""

    throttle: Throttle | None = Quota.per_minute(100)
    key_func: KeyFunc | None = sync_key
    using = Algorithm.GCRA
    tags = ["items"]
    dependencies = [Depends(sync_key)]

    request: Request
    agent: Annotated[str, Depends(sync_key)]


class Text(Base):
    """Throttled by a text."""

    throttle = "5/m"


class Several(Base):
    """Throttled by a list."""

    throttle = ["5/s", Quota.per_hour(100)]


class Exempt(Base):
    """Not throttled."""

    throttle = EXEMPT


class Detailed(Base):
    """Throttled by a limit, for whom an async function says."""

    throttle = Limit("5/m", cost=2, on_store_error="deny")
    key_func = async_key
    using = Algorithm.SLIDING_LOG


class StaticKey(ThrottledView):
    """The key function stands in the class."""

    throttle = "5/m"

    @staticmethod
    def key_func(request: Request) -> str:
        """Be a key function that takes no self."""
        return request.url.path


class LambdaKey(ThrottledView):
    """The key function has no name."""

    throttle = "5/m"
    key_func = staticmethod(lambdas[0])


class Items(Base):
    """Handlers keep their types under every decorator."""

    path = "/items"

    def __init__(self, agent: Annotated[str, Depends(sync_key)]) -> None:
        """Take a dependency."""
        self.name = agent

    async def get(self, rate_limit: CurrentRateLimit) -> list[Item]:
        """Read where the client stands."""
        assert_type(rate_limit, RateLimitContext)
        assert_type(rate_limit.result, RateLimitResult)
        assert_type(rate_limit.results, tuple[RateLimitResult, ...])
        assert_type(rate_limit.headers, Mapping[str, str])
        return [Item(name=self.name)]

    @limit("5/m", Quota.per_hour(100), cost=2, key_func=client_ip, name="writes")
    async def post(self, item: Item) -> Item:
        """Be limited apart."""
        return item

    @exempt
    async def delete(self) -> None:
        """Be unlimited."""

    @route.get("/{name}", status_code=203, response_model=Item)
    @route.get("/by-name/{name}")
    @limit(Limit("5/m", name="burst"))
    async def find(self, name: str) -> Item:
        """Have two paths and a limit."""
        return Item(name=name)


class FewerItems(Items):
    """Overrides and calls the base."""

    async def post(self, item: Item) -> Item:
        """Call super."""
        return assert_type(await super().post(item), Item)


# What FastAPI solves -------------------------------------------------------------

CurrentUser = Annotated[str, Depends(async_key)]


async def by_user(user: CurrentUser) -> str | None:
    """Name who is logged in."""
    return user


async def quota_of_plan(user: CurrentUser) -> Quota:
    """Choose a quota."""
    return Quota.per_minute(len(user))


def any_quota(user: CurrentUser, request: Request) -> Quota | str | NoLimit:
    """Choose a quota, its text, or none."""
    return EXEMPT if user == "root" else "5/m"


async def quota_in_text() -> str:
    """Choose a quota by nothing."""
    return "5/m"


def cost_of_body(item: Item) -> int:
    """Charge by the body."""
    return len(item.name)


async def cost_of_user(user: CurrentUser, *, page: int = 1) -> int:
    """Charge by who asks, and for what."""
    return page * len(user)


all_kinds_of_quotas: list[QuotaFunc] = [quota_of_plan, any_quota, quota_in_text]
all_kinds_of_costs: list[CostFunc] = [cost_of_body, cost_of_user]
by_default = Limiter(quota_of_plan, key_func=by_user)
late: Throttle = ["5/m", quota_of_plan, Limit(any_quota, cost=cost_of_user)]


class Plans(ThrottledView):
    """Who is logged in decides."""

    path = "/plans"
    throttle = quota_of_plan
    key_func = by_user

    async def get(self, user: CurrentUser) -> str:
        """Be limited by the plan."""
        return user

    @limit("5/m", cost=cost_of_body)
    async def post(self, item: Item) -> Item:
        """Cost what the body says."""
        return item

    @limit(quota_of_plan, any_quota, key_func=by_user, cost=cost_of_user)
    async def put(self, item: Item) -> Item:
        """Have several."""
        return item


class MorePlans(Plans):
    """Another function of the same type is an override."""

    async def get(self, user: CurrentUser) -> str:
        """Call super."""
        return assert_type(await super().get(user), str)


class AnyPlans(ThrottledView):
    """A base that is to be overridden says so."""

    throttle: Throttle | None = quota_of_plan
    key_func: KeyFunc | None = by_user


class StaticPlans(AnyPlans):
    """Another kind of throttle and of key."""

    throttle = "5/m"
    key_func = client_ip


@limiter.limit(quota_of_plan, key_func=by_user, cost=cost_of_body)
async def plan(item: Item) -> Item:
    """Be a function."""
    return item


assert_type(
    limiter.dependency(quota_of_plan, key_func=by_user, cost=cost_of_body),
    Callable[..., Awaitable[RateLimitContext]],
)


async def late_functions_keep_their_types(plans: Plans, user: str) -> None:
    """A function in a class attribute is still the function; so is a handler."""
    assert_type(await plans.get(user), str)
    assert_type(await plan(Item(name=user)), Item)


M = TypeVar("M", bound=BaseModel)


class Crud(Base, Generic[M]):
    """A generic base."""

    async def put(self, item: M) -> M:
        """Give it back."""
        return item


class ItemCrud(Crud[Item]):
    """A generic base, made concrete."""


async def handlers_keep_their_signatures(items: Items, crud: ItemCrud) -> None:
    """A handler can be called as the method it is."""
    assert_type(await items.find("a"), Item)
    assert_type(await items.post(Item(name="a")), Item)
    assert_type(await crud.put(Item(name="a")), Item)
    assert_type(Items.throttled, Mapping[str, Throttled])


# Routers ------------------------------------------------------------------------

assert_type(Items.as_router(), ThrottledRouter)
assert_type(Items.as_router(limiter, prefix="/v1", tags=["items"]), ThrottledRouter)
is_a_router: APIRouter = ThrottledRouter(limiter, prefix="/v1", tags=["items"])

router = ThrottledRouter(limiter)
router.add_view(Items, prefix="/shop", deprecated=True)


@router.view
class Registered(ThrottledView):
    """A decorated class is still itself."""

    throttle = "5/m"


assert_type(Registered, type[Registered])


@router.get("/plain")
@limiter.limit("5/m")
async def plain() -> int:
    """Be a route of a ThrottledRouter."""
    return 0


# Hooks and stores ---------------------------------------------------------------


class Pager:
    """A hook is what has its method; it need not say so."""

    def on_check(self, event: CheckEvent) -> None:
        """Read nothing of it."""

    def on_store_state(self, event: StoreStateEvent) -> None:
        """Read all of an event."""
        assert_type(event.available, bool)
        assert_type(event.policy, OnStoreError)
        assert_type(event.error, Exception | None)


class NamedPager(Hook):
    """A hook that says so."""

    def on_check(self, event: CheckEvent) -> None:
        """Read nothing of it."""

    def on_store_state(self, event: StoreStateEvent) -> None:
        """Read nothing."""


observed = Limiter("5/m", hooks=[Pager(), NamedPager()])
stores: list[Store] = [
    MemoryStore(max_keys=10),
    RedisStore("redis://localhost:6379/0", timeout=0.1),
]
assert_type(observed.store, Store)


async def stores_answer_alike(store: Store, charge: Charge) -> None:
    """What a store is asked and answers has types, whichever it is."""
    results = await store.acquire([charge])
    assert_type(results, Sequence[RateLimitResult])
    assert_type(await store.peek([charge]), Sequence[RateLimitResult])
    receipts = [receipt for result in results for receipt in result.receipts]
    assert_type(receipts, list[Receipt])
    assert_type(await store.refund(receipts), None)
    assert_type(await store.reset([charge.key]), None)
    assert_type(await store.aclose(), None)


def statistics_are_read_of_any_store(store: Measured) -> None:
    """What is not known is None."""
    assert_type(store.statistics, StoreStatistics)
    assert_type(store.statistics.keys, int | None)
    assert_type(store.statistics.evictions, int | None)
    assert_type(store.statistics.exhausted_evictions, int | None)
    assert_type(store.statistics.cached_refusals, int | None)


measured: list[Measured] = [MemoryStore(), RedisStore("redis://localhost:6379/0")]
hooks: list[Hook] = [
    PrometheusHook(
        registry=CollectorRegistry(),
        namespace="shop",
        store=MemoryStore(),
        buckets=[0.001, 0.01],
    ),
    OTelHook(
        meter_provider=get_meter_provider(),
        store=measured[1],
        span_events=["admitted", "refused"],
    ),
]
assert_type(REFUSALS, tuple[CheckOutcome, ...])


# Applications -------------------------------------------------------------------

app.add_middleware(RateLimitMiddleware)
app.add_middleware(RateLimitMiddleware, limiter=Limiter(), throttle=["5/s", "100/m"])
app.add_middleware(CORSMiddleware, expose_headers=EXPOSED_HEADERS)
app.mount("/around", RateLimitMiddleware(FastAPI(), throttle=Quota.per_minute(60)))
is_asgi: ASGIApp = RateLimitMiddleware(app, throttle=Limit("5/s", key_func=everyone))


# Errors -------------------------------------------------------------------------

app.add_exception_handler(RateLimitExceededError, rate_limit_exceeded_handler)

configuration: list[type[ConfigurationError]] = [
    InvalidQuotaError,
    RegistrationError,
    ViewDefinitionError,
]
request_time: list[type[ThrottledViewsError]] = [LimitedError, StoreUnavailableError]
type_error: type[TypeError] = ViewDefinitionError
http_exception: type[HTTPException] = RateLimitExceededError
limited: type[LimitedError] = RateLimitExceededError


def refusals_carry_their_context(refusal: RateLimitExceededError) -> None:
    """A handler of refusals can read what led to them."""
    assert_type(refusal.rate_limit_context, RateLimitContext)
    assert_type(refusal.status_code, int)
    assert_type(refusal.detail, str)


async def anybody_may_catch(throttled: Throttled) -> None:
    """Errors are caught by their classes, and say what they are about."""
    try:
        await throttled.limit("alice")
    except StoreUnavailableError as error:
        assert_type(error, StoreUnavailableError)
    except ThrottledViewsError as error:
        assert_type(str(error), str)


# Route keys ---------------------------------------------------------------------

by_places = Limiter("9/m", route_key=by_template)
by_places_of_ours = Limiter("9/m", route_key=by_template(root_path=False))
by_handlers = Limiter("9/m", route_key=by_endpoint)


def limiter_of(headers: HeaderPolicy, route_key: RouteKey) -> Limiter:
    """Options of a limiter may be passed on."""
    return Limiter(headers=headers, route_key=route_key)


limiter_of(LEGACY_HEADERS, by_template)
limiter_of(IETFHeaders(), by_endpoint)


# Auditing -----------------------------------------------------------------------

for audited in audit(app):
    assert_type(audited, AuditedRoute)
    assert_type(audited.methods, tuple[str, ...])
    assert_type(audited.limits, tuple[AuditedLimit, ...])
    assert_type(audited.exempt, str | None)
    assert_type([each.quota for each in audited.limits], list[str])
    for audited_limit in audited.limits:
        assert_type(audited_limit.algorithm, Algorithm)
        assert_type(audited_limit.key_func, str)
        assert_type(audited_limit.phase, CheckPhase)
        assert_type(audited_limit.route, str)

assert_type(document_limits(app), None)

# Observing, giving back, waiting ------------------------------------------------


def read_an_event(event: CheckEvent) -> None:
    """An event says what it is about; its result may be missing."""
    assert_type(event.limit, CheckedLimit)
    assert_type(event.limit.quota, str)
    assert_type(event.phase, CheckPhase)
    assert_type(event.outcome, CheckOutcome)
    assert_type(event.duration, float)
    assert_type(event.delay, float)
    assert_type(event.result, RateLimitResult | None)


class Partial(Hook):
    """A hook may leave out what it does not observe."""

    def on_check(self, event: CheckEvent) -> None:
        """Observe."""


Limiter(hooks=[Partial()])


def succeeded(status: int) -> bool:
    """Tell whether a charge comes back."""
    return status < 400


refund_when: RefundWhen = succeeded
Limit("5/m", shadow=True, refund_when=refund_when, max_delay=2)
limiter.limit("5/m", refund_when=lambda status: status < 400)
limit("5/m", max_delay=0.5)


async def give_back(rate_limit: RateLimitContext) -> None:
    """A handler gives back what was too much."""
    assert_type(await rate_limit.refund(5), None)
    await rate_limit.refund(5, name="tokens")


# Testing ------------------------------------------------------------------------

manual_clock = ManualClock(start=1.5)
assert_type(manual_clock(), int)
assert_type(manual_clock.advance(-0.5), None)
assert_type(manual_clock.set(90), None)
store_with_a_clock: Store = MemoryStore(clock=manual_clock)


class MyStoreTests(StoreContract):
    """A store's own fixtures go here."""


async def a_promise_is_checked(store: Store, clock: ManualClock) -> None:
    """Call a check without pytest."""
    await MyStoreTests().test_a_wait_is_as_long_as_it_is_told(store, clock)


async def expect_a_refusal(client: httpx.AsyncClient, other: TestClient) -> None:
    """Responses of both clients may be checked, and limits lifted."""
    assert_throttled(await client.get("/"), retry_after=2.5)
    with no_limits(limiter), no_limits():
        assert_throttled(other.get("/"))
