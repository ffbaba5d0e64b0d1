"""The end of an application: what a router closes then, and what it leaves alone."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest
from fastapi import APIRouter, FastAPI, Request
from fastapi.testclient import TestClient

from tests.asgi import Relay, app_of
from tests.outages import Outage
from throttled_views import EXEMPT, Limiter, ThrottledRouter, ThrottledView

Lifespan = Callable[[Any], AbstractAsyncContextManager[Any]]

# Some versions of Starlette say so, and applications still have them.
pytestmark = pytest.mark.filterwarnings("ignore:The on_startup and on_shutdown")


async def hello(request: Request) -> dict[str, Any]:
    """Return the state that lifespans gave."""
    state: dict[str, Any] = request.scope.get("state", {})
    return state


def lifespan_of(log: list[str], name: str) -> Lifespan:
    """Return a lifespan that notes when it begins and ends, and gives a state."""

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncGenerator[Mapping[str, Any], None]:  # noqa: ANN401
        log.append(f"{name} begins")
        yield {name: type(app).__name__}
        log.append(f"{name} ends")

    return lifespan


class Closing(Relay):
    """A store that notes in a log that it is closed."""

    def __init__(self, log: list[str], name: str = "store") -> None:
        super().__init__()
        self.log = log
        self.name = name

    async def aclose(self) -> None:
        """Note it."""
        self.log.append(f"{self.name} closed")


def router_on(store: Relay, **options: Any) -> ThrottledRouter:  # noqa: ANN401
    """Return a router with a route, which counts in *store*."""
    router = ThrottledRouter(Limiter("5/h", store=store), **options)
    router.add_api_route("/", hello)
    return router


def served(app: FastAPI | ThrottledRouter, *paths: str) -> list[int]:
    """Start *app*, ask for *paths*, and stop it."""
    with TestClient(app) as client:
        return [client.get(path).status_code for path in paths]


def test_the_store_is_closed_when_the_application_ends() -> None:
    """And not before: what it opened is given back after the last request."""
    log: list[str] = []
    app = app_of(router_on(Closing(log)))

    with TestClient(app) as client:
        assert 200 == client.get("/").status_code
        assert [] == log

    assert ["store closed"] == log


def test_a_router_that_is_an_application_closes_its_store() -> None:
    """It may be started without one around it."""
    log: list[str] = []

    served(router_on(Closing(log)))

    assert ["store closed"] == log


def test_a_view_that_is_included_closes_its_store() -> None:
    """`as_router` makes a router like any other."""

    class View(ThrottledView):
        path = "/"
        throttle = EXEMPT

        async def get(self) -> None:
            """Do nothing."""

    log: list[str] = []

    assert [200] == served(app_of(View.as_router(Limiter(store=Closing(log)))), "/")
    assert ["store closed"] == log


@pytest.mark.parametrize("outer", [ThrottledRouter, APIRouter])
def test_stores_of_nested_routers_are_closed(outer: type[APIRouter]) -> None:
    """However deep a router is, and whatever routers are around it."""
    log: list[str] = []
    middle, inner = outer(), router_on(Closing(log))
    middle.include_router(inner, prefix="/inner")
    app = FastAPI()
    app.include_router(middle, prefix="/middle")

    assert [200] == served(app, "/middle/inner/")
    assert ["store closed"] == log


def test_a_store_that_routers_share_is_closed_by_each() -> None:
    """Closing may be done twice, and nothing is asked of the store after the last."""
    store = Outage(is_down=False)
    limiter = Limiter("5/h", store=store)
    one, other = ThrottledRouter(limiter), ThrottledRouter(limiter)
    one.add_api_route("/one", hello)
    other.add_api_route("/other", hello)

    assert [200, 200] == served(app_of(one, other), "/one", "/other")
    assert ["acquire", "acquire", "aclose", "aclose"] == store.asked


def test_an_application_may_be_started_again() -> None:
    """A store that was closed can be used, and is closed at the next end."""
    log: list[str] = []
    app = app_of(router_on(Closing(log)))

    assert [[200], [200]] == [served(app, "/") for _ in range(2)]
    assert ["store closed"] * 2 == log


def test_lifespans_of_the_user_are_around_each_other() -> None:
    """A router's own may still use the store, and both give their state to requests."""
    log: list[str] = []
    router = router_on(Closing(log), lifespan=lifespan_of(log, "router"))
    app = FastAPI(lifespan=lifespan_of(log, "application"))
    app.include_router(router)

    with TestClient(app) as client:
        state = client.get("/").json()

    assert {"application": "FastAPI", "router": "FastAPI"} == state
    assert [
        "application begins",
        "router begins",
        "router ends",
        "store closed",
        "application ends",
    ] == log


def test_the_store_is_closed_when_the_application_does_not_start() -> None:
    """What was opened until then is given back, and the error is the user's own."""
    log: list[str] = []

    @asynccontextmanager
    async def failing(app: Any) -> AsyncGenerator[None, None]:  # noqa: ANN401
        raise ZeroDivisionError
        yield

    app = app_of(router_on(Closing(log), lifespan=failing))

    with pytest.raises(ZeroDivisionError):
        served(app)
    assert ["store closed"] == log


def course(make: Callable[..., APIRouter]) -> list[str]:
    """Return what handlers of a router do while an application starts and stops."""
    log: list[str] = []

    async def start() -> None:
        log.append("startup")

    def stop() -> None:
        log.append("shutdown")

    router = make(on_startup=[start], on_shutdown=[stop])
    served(app_of(router))
    return log


def test_handlers_of_events_still_run() -> None:
    """Those for startup and shutdown run as they do on an `APIRouter`."""
    log = course(ThrottledRouter)

    assert course(APIRouter) == log
    assert {"startup", "shutdown"} == set(log)


def test_a_store_is_closed_after_the_handlers_of_events() -> None:
    """A handler for shutdown may still use it."""
    log: list[str] = []
    router = router_on(Closing(log), on_shutdown=[lambda: log.append("shutdown")])

    served(app_of(router))

    assert "shutdown" in log
    assert log.index("shutdown") < log.index("store closed")
