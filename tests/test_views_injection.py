"""What FastAPI gives to the instance of a view."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

import pytest
from fastapi import (
    BackgroundTasks,
    Cookie,
    Depends,
    Header,
    HTTPException,
    Path,
    Query,
    Request,
    Response,
    WebSocket,
)
from fastapi.security import SecurityScopes
from fastapi.testclient import TestClient
from pydantic import BaseModel
from starlette.requests import HTTPConnection

from tests.apps_views import app_of, body, operation, view_of
from tests.asgi import answers, statuses
from throttled_views import ThrottledView, limit, route


def agent(user_agent: Annotated[str, Header()]) -> str:
    """Depend on a header."""
    return user_agent


async def get_seven() -> int:
    """Depend on nothing."""
    return 7


class Pages(BaseModel):
    """Which page is asked for; a dependency by its own constructor."""

    page: int = 1


class Throttled(ThrottledView):
    """Is far from its limit."""

    throttle = "100/m"


# --- where values come from -----------------------------------------------------------


async def test_a_constructor_is_given_what_it_asks_for() -> None:
    """Parameters of __init__ are filled as those of any FastAPI function."""

    class View(Throttled):
        def __init__(
            self,
            request: Request,
            name: str,
            seven: Annotated[int, Depends(get_seven)],
            *,
            size: Annotated[int, Query(ge=1)] = 10,
        ) -> None:
            self.given: list[object] = [request.url.path, name, seven, size]

        @route.get("/{name}")
        async def find(self) -> list[object]:
            return self.given

    app = app_of(View)

    assert ["/v/a", "a", 7, 10] == await body(app, "GET /v/a")
    assert ["/v/b", "b", 7, 20] == await body(app, "GET /v/b?size=20")
    assert [422] == await statuses(app, "GET /v/b?size=0")


async def test_attributes_are_given_what_they_are_annotated_with() -> None:
    """Annotated attributes that carry a marker of FastAPI are filled."""

    class View(Throttled):
        seven: Annotated[int, Depends(get_seven)]
        pages: Annotated[Pages, Depends()]
        size: Annotated[int, Query(ge=1)] = 10
        user_agent: Annotated[str, Header()]
        session: Annotated[str | None, Cookie()] = None
        name: Annotated[str, Path()]

        @route.get("/{name}")
        async def find(self) -> list[object]:
            return [
                self.seven,
                self.pages.page,
                self.size,
                self.user_agent,
                self.session,
                self.name,
            ]

    app = app_of(View)
    headers = {"User-Agent": "test", "Cookie": "session=s"}
    request = "GET /v/a?size=20&page=3"
    [answer] = await answers(app, request, headers=headers)

    assert [7, 3, 20, "test", "s", "a"] == answer.json()
    assert [422] == await statuses(app, "GET /v/a?size=0")


async def test_a_marker_as_a_default_is_replaced() -> None:
    """The older spelling, a marker as the value, works where it has an annotation."""

    class View(Throttled):
        seven: int = Depends(get_seven)
        size: int = Query(10, ge=1)

        async def get(self) -> list[int]:
            return [self.seven, self.size]

    app = app_of(View)

    assert [7, 10] == await body(app)
    assert [7, 20] == await body(app, "GET /v?size=20")
    assert [422] == await statuses(app, "GET /v?size=0")


async def test_attributes_of_a_request_are_known_by_their_type() -> None:
    """The classes that FastAPI gives by themselves need no marker."""

    class View(Throttled):
        request: Request
        connection: HTTPConnection
        response: Response
        tasks: BackgroundTasks
        scopes: SecurityScopes

        async def get(self) -> list[str]:
            self.response.headers["X-View"] = "yes"
            self.tasks.add_task(ran.append, "after")
            return [
                self.request.url.path,
                self.connection.url.path,
                *self.scopes.scopes,
            ]

    ran: list[str] = []
    [answer] = await answers(app_of(View), "GET /v")

    assert (["/v", "/v"], "yes") == (answer.json(), answer.headers["X-View"])
    assert ["after"] == ran


async def test_attributes_are_there_before_the_constructor() -> None:
    """Whatever is injected into a view can be used in its __init__."""

    class View(Throttled):
        request: Request
        seven: Annotated[int, Depends(get_seven)]

        def __init__(self, size: int) -> None:
            self.text = f"{self.request.method} {self.seven * size}"

        async def get(self) -> str:
            return self.text

    assert "GET 21" == await body(app_of(View), "GET /v?size=3")


async def test_a_parameter_hides_an_attribute_of_its_name() -> None:
    """What __init__ takes is not set before it; what becomes of it is its business."""

    class View(Throttled):
        seven: Annotated[int, Depends(get_seven)]

        def __init__(self, seven: Annotated[int, Depends(lambda: 8)]) -> None:
            self.was_set = hasattr(self, "seven")
            self.seven = seven

        async def get(self) -> list[int]:
            return [self.was_set, self.seven]

    assert [False, 8] == await body(app_of(View))


async def test_other_parameters_of_a_constructor_are_left_to_it() -> None:
    """Only what has a name is asked of the request."""

    class View(Throttled):
        def __init__(self, size: int = 1, *args: object, **kwargs: object) -> None:
            self.given = [size, len(args), len(kwargs)]

        async def get(self) -> list[int]:
            return self.given

    app = app_of(View)

    assert ["size"] == [each["name"] for each in operation(app)["parameters"]]
    assert [3, 0, 0] == await body(app, "GET /v?size=3")


# --- what is left alone ---------------------------------------------------------------


async def test_plain_attributes_stay_plain() -> None:
    """An annotation alone injects nothing, and is no parameter of the request."""

    class View(Throttled):
        model: type[BaseModel] = Pages
        size: int = 10
        missing: str
        noted: Annotated[int, "just a note"] = 3
        shared: ClassVar[int] = 4
        marked: ClassVar[Annotated[int, Query()]] = 5
        untyped: Any = 6

        async def get(self) -> list[object]:
            missing = hasattr(self, "missing")
            return [self.model.__name__, self.size, missing, self.noted]

        async def post(self) -> list[int]:
            return [self.shared, self.marked, self.untyped]

    app = app_of(View)

    assert ["Pages", 10, False, 3] == await body(app, "GET /v?size=1&noted=1&missing=1")
    assert [4, 5, 6] == await body(app, "POST /v?shared=1&marked=1&untyped=1")
    assert "parameters" not in operation(app)
    assert "parameters" not in operation(app, "post")


async def test_the_instance_is_no_parameter() -> None:
    """Neither self nor what makes it is in the OpenAPI document."""

    class View(Throttled):
        seven: Annotated[int, Depends(get_seven)]

        async def get(self, size: int) -> int:
            return self.seven * size

    assert ["size"] == [each["name"] for each in operation(app_of(View))["parameters"]]


# --- inheritance ----------------------------------------------------------------------


class Base(Throttled):
    """Asks for some values, in both ways."""

    request: Request
    seven: Annotated[int, Depends(get_seven)]

    def __init__(self, size: int = 1) -> None:
        """Keep the size."""
        self.size = size

    async def get(self) -> list[object]:
        """Tell what was given."""
        return [self.request.url.path, self.seven, self.size]


async def test_what_a_base_asks_for_is_injected() -> None:
    """Attributes and the constructor of a base class are those of the view."""

    class View(Base):
        user_agent: Annotated[str, Header()]

        async def post(self) -> str:
            return self.user_agent

    app = app_of(View)
    [answer] = await answers(app, "POST /v", headers={"User-Agent": "test"})

    assert ["/v", 7, 3] == await body(app, "GET /v?size=3")
    assert "test" == answer.json()


async def test_a_constructor_replaces_that_of_the_base() -> None:
    """Parameters are those of the nearest __init__; it calls the other one itself."""

    class View(Base):
        def __init__(self, pages: Annotated[Pages, Depends()]) -> None:
            super().__init__(pages.page * 100)

    app = app_of(View)

    assert ["/v", 7, 200] == await body(app, "GET /v?page=2")
    assert ["page"] == [each["name"] for each in operation(app)["parameters"]]


async def test_an_attribute_replaces_that_of_the_base() -> None:
    """The nearest annotation decides how, and whether, an attribute is filled."""

    class Other(Base):
        seven: Annotated[int, Depends(lambda: 8)]

    class Plain(Base):
        path = "/plain"
        seven: int = 9

    app = app_of(Other, Plain)

    assert ["/v", 8, 1] == await body(app)
    assert ["/v/plain", 9, 1] == await body(app, "GET /v/plain")


async def test_a_marker_replaces_that_of_the_base() -> None:
    """A subclass may ask somebody else, for what its base annotates."""

    class Asking(Throttled):
        seven: int = Depends(get_seven)

        async def get(self) -> int:
            return self.seven

    class View(Asking):
        seven = Depends(lambda: 8)

    assert 8 == await body(app_of(View))


async def test_a_value_replaces_what_a_base_asks_for() -> None:
    """A subclass that says what an attribute is needs no annotation for that."""

    class View(Base):
        seven = 9

    assert ["/v", 9, 1] == await body(app_of(View))


async def test_a_property_replaces_what_a_base_asks_for() -> None:
    """A subclass may compute what its base is given."""
    view = view_of(("seven", property(lambda self: 9)), bases=(Base,))

    assert ["/v", 9, 1] == await body(app_of(view))


async def test_what_a_mixin_asks_for_is_injected() -> None:
    """A base that is no view may ask for values too."""

    class Mixin:
        user_agent: Annotated[str, Header()]

    class View(Mixin, Throttled):
        async def get(self) -> str:
            return self.user_agent

    [answer] = await answers(app_of(View), "GET /v", headers={"User-Agent": "test"})

    assert "test" == answer.json()


# --- dataclasses ----------------------------------------------------------------------


@dataclass
class Fields(Throttled):
    """Has its constructor written by Python."""

    request: Request
    seven: Annotated[int, Depends(get_seven)]
    size: Annotated[int, Query(ge=1)] = 10
    seen: list[int] = field(default_factory=list[int], init=False)

    async def get(self) -> list[object]:
        """Tell what was given."""
        self.seen.append(self.size)
        return [self.request.url.path, self.seven, self.seen]


@dataclass(slots=True)
class Slots(Throttled):
    """Is made twice by Python, the second time with slots."""

    request: Request
    seven: Annotated[int, Depends(get_seven)]
    size: Annotated[int, Query(ge=1)] = 10
    response: Response = field(init=False)

    async def get(self) -> list[object]:
        """Tell what was given."""
        self.response.headers["X-View"] = "yes"
        return [self.request.url.path, self.seven, [self.size]]

    @limit("1/m")
    async def post(self) -> bool:
        """Tell whether there is a dictionary of attributes besides the base's."""
        return "size" in vars(self)


@pytest.mark.parametrize("view", [Fields, Slots])
async def test_a_view_may_be_a_dataclass(view: type[ThrottledView]) -> None:
    """Fields are filled as the parameters of the constructor that they are."""
    app = app_of(view)

    assert ["/v", 7, [10]] == await body(app)
    assert ["/v", 7, [20]] == await body(app, "GET /v?size=20")
    assert [422] == await statuses(app, "GET /v?size=0")


async def test_a_dataclass_with_slots_is_one_view() -> None:
    """The class that Python makes in place of the first keeps its limits."""
    app = app_of(Slots)
    first, second = await answers(app, "POST /v", "POST /v")

    assert ["100/m", "1/m"] == [
        str(throttled.limits[0].quota) for throttled in Slots.throttled.values()
    ]
    assert (200, False, 429) == (first.status_code, first.json(), second.status_code)


async def test_a_declaration_is_no_field_of_the_request() -> None:
    """An annotated declaration of a dataclass is not asked of the client."""

    @dataclass
    class View(Throttled):
        path: str = "/declared"

        async def get(self) -> str:
            return self.path

    app = app_of(View)

    assert "/declared" == await body(app, "GET /v/declared?path=asked")
    assert "parameters" not in operation(app, "get", "/v/declared")


async def test_an_attribute_may_have_a_slot() -> None:
    """A slot is a place for an injected value, and no default of it."""

    class View(Throttled):
        __slots__ = ("seven",)

        seven: Annotated[int, Depends(get_seven)]

        async def get(self) -> int:
            return self.seven

    assert 7 == await body(app_of(View))


# --- dependencies ---------------------------------------------------------------------


async def test_a_dependency_that_yields_is_closed() -> None:
    """It is open while the handler runs, and sees what the handler raises."""
    events: list[str] = []

    async def get_session() -> AsyncIterator[str]:
        events.append("open")
        try:
            yield "session"
        except HTTPException as error:
            events.append(f"saw {error.status_code}")
            raise
        finally:
            events.append("close")

    class View(Throttled):
        session: Annotated[str, Depends(get_session)]

        async def get(self) -> None:
            events.append(self.session)

        async def post(self) -> None:
            raise HTTPException(409)

    assert [200, 409] == await statuses(app_of(View), "GET /v", "POST /v")
    assert ["open", "session", "close", "open", "saw 409", "close"] == events


async def test_a_sync_dependency_that_yields_is_closed() -> None:
    """Sync ones run in a thread, as FastAPI has it, and are closed too."""
    events: list[str] = []

    def get_session() -> Iterator[str]:
        yield "session"
        events.append("close")

    class View(Throttled):
        session: Annotated[str, Depends(get_session)]

        async def get(self) -> str:
            return self.session

    assert "session" == await body(app_of(View))
    assert ["close"] == events


async def test_a_dependency_is_solved_once_for_a_request() -> None:
    """What the view and the handler ask for both is the same value."""
    calls: list[object] = []

    async def get_session() -> object:
        calls.append(object())
        return calls[-1]

    class View(Throttled):
        first: Annotated[object, Depends(get_session)]

        def __init__(self, second: Annotated[object, Depends(get_session)]) -> None:
            self.second = second

        async def get(self, third: Annotated[object, Depends(get_session)]) -> bool:
            return self.first is self.second is third

    app = app_of(View)

    assert [True, True] == [await body(app), await body(app)]
    assert 2 == len(calls)


async def test_dependencies_can_be_overridden() -> None:
    """FastAPI's way to replace a dependency in tests reaches views."""

    class View(Throttled):
        seven: Annotated[int, Depends(get_seven)]

        def __init__(self, again: Annotated[int, Depends(get_seven)]) -> None:
            self.again = again

        async def get(self) -> list[int]:
            return [self.seven, self.again]

    app = app_of(View)
    app.dependency_overrides[get_seven] = lambda: 8

    assert [8, 8] == await body(app)


async def test_a_dependency_can_refuse_the_request() -> None:
    """An error of what is injected is the answer; it was charged, and says so."""

    async def login() -> None:
        raise HTTPException(401)

    class View(Throttled):
        user: Annotated[None, Depends(login)]

        async def get(self) -> None:
            pass

    [answer] = await answers(app_of(View), "GET /v")

    assert (401, "99") == (answer.status_code, answer.headers["RateLimit-Remaining"])


async def test_nothing_is_made_for_a_refused_request() -> None:
    """Over the limit no dependency runs, and no instance is made."""
    made: list[str] = []

    class View(Throttled):
        seven: Annotated[None, Depends(lambda: made.append("dependency"))]

        def __init__(self) -> None:
            made.append("instance")

        @limit("1/m")
        async def get(self) -> None:
            pass

    assert [200, 429, 429] == await statuses(app_of(View), "GET /v", "GET /v", "GET /v")
    assert ["dependency", "instance"] == made


# --- threads and sockets --------------------------------------------------------------


@pytest.mark.parametrize("asks", [True, False], ids=["injected", "nothing to inject"])
async def test_an_instance_is_made_where_the_handler_runs(asks: bool) -> None:  # noqa: FBT001
    """No request waits for a thread to make its instance."""
    threads: list[int] = []

    class Made(Throttled):
        def __init__(self) -> None:
            threads.append(threading.get_ident())

        async def get(self) -> None:
            threads.append(threading.get_ident())

    class Asks(Made):
        request: Request

    await body(app_of(Asks if asks else Made))

    assert [threading.get_ident()] * 2 == threads


def test_a_socket_is_injected() -> None:
    """The handlers of sockets are given what others are; they have no Request."""

    class View(Throttled):
        request: Request
        websocket: WebSocket
        seven: Annotated[int, Depends(get_seven)]

        @route.websocket("/{name}")
        async def talk(self, name: str) -> None:
            await self.websocket.accept()
            has_request = hasattr(self, "request")
            await self.websocket.send_json([name, self.seven, has_request])
            await self.websocket.close()

        async def get(self) -> list[bool]:
            return [hasattr(self, "request"), hasattr(self, "websocket")]

    client = TestClient(app_of(View))

    with client.websocket_connect("/v/a") as socket:
        assert ["a", 7, False] == socket.receive_json()
    assert [True, False] == client.get("/v").json()


async def test_instances_of_concurrent_requests_have_their_own_values() -> None:
    """What is injected is of the request that it is injected for."""
    all_there = asyncio.Barrier(3)

    class View(Throttled):
        request: Request
        name: Annotated[str, Query()]

        async def get(self) -> list[str]:
            async with asyncio.timeout(5):
                await all_there.wait()
            return [self.name, self.request.query_params["name"]]

    app = app_of(View)

    assert [[name, name] for name in "abc"] == await asyncio.gather(
        *(body(app, f"GET /v?name={name}") for name in "abc")
    )
