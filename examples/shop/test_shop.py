"""The shop's own tests: each has fresh counters, and quotas that are quickly spent."""

import pytest
from fastapi.testclient import TestClient

from throttled_views import MemoryStore, Quota, audit
from throttled_views.stores.redis import RedisStore

from .limits import make_store
from .main import create_app
from .settings import Settings

ALICE = {"Authorization": "Bearer t-alice"}
BOB = {"Authorization": "Bearer t-bob"}


def client_with(**quotas: Quota) -> TestClient:
    """Open a shop that counts in memory, with these quotas."""
    settings = Settings(redis_url=None).model_copy(update=quotas)
    return TestClient(create_app(settings))


def test_everybody_may_browse() -> None:
    """The catalogue has a quota for each address, and a token does not matter."""
    client = client_with(browsing_quota=Quota.per_minute(2))
    answers = [client.get("/books", headers=each) for each in ({}, ALICE, BOB)]

    assert [answer.status_code for answer in answers] == [200, 200, 429]


def test_a_plan_is_one_quota_for_all_that_a_customer_does() -> None:
    """What is left is told, and spent by listing and by ordering."""
    client = client_with(free_quota=Quota.per_minute(3))

    assert client.post("/orders", json={"isbn": "emma"}, headers=ALICE).is_success
    assert client.get("/orders", headers=ALICE).json()[-1]["title"] == "Emma"
    assert client.get("/account", headers=ALICE).json() == {"plan": "free", "left": 0}
    assert client.get("/orders", headers=ALICE).status_code == 429
    assert client.get("/account", headers=BOB).json() == {"plan": "pro", "left": 49}


def test_guessing_tokens_is_limited() -> None:
    """A wrong token is a 401, and after a few of them nobody looks at the next."""
    client = client_with(address_quota=Quota.per_minute(2))
    headers = {"Authorization": "Bearer guessed"}
    answers = [client.get("/orders", headers=headers) for _ in range(3)]

    assert [answer.status_code for answer in answers] == [401, 401, 429]


def test_what_is_not_there_is_not_found() -> None:
    """Neither in the catalogue nor to order."""
    client = client_with()

    assert client.get("/books/ulysses").status_code == 404
    order = client.post("/orders", json={"isbn": "ulysses"}, headers=ALICE)
    assert order.status_code == 404


def test_no_route_was_forgotten() -> None:
    """Whatever has no limit says that it is meant so."""
    routes = audit(create_app(Settings(redis_url=None)))

    assert [route.path for route in routes if route.is_unlimited] == []
    assert [route.problem for route in routes if route.problem] == []


def test_health_is_never_refused() -> None:
    """A load balancer may ask as often as it likes."""
    client = client_with(browsing_quota=Quota.per_minute(1))
    answers = [client.get("/health") for _ in range(10)]

    assert {answer.status_code for answer in answers} == {200}


def test_quotas_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable has the text of a quota."""
    monkeypatch.setenv("FREE_QUOTA", "20/m burst 5")

    assert Settings().free_quota == Quota.per_minute(20, burst=5)


def test_redis_is_used_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The store depends on REDIS_URL alone, and connects when it is first asked."""
    monkeypatch.setenv("REDIS_URL", "redis://localhost:6379/0")
    assert isinstance(make_store(Settings()), RedisStore)

    monkeypatch.delenv("REDIS_URL")
    assert isinstance(make_store(Settings()), MemoryStore)
