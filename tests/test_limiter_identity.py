"""What is limited is an object, and keys name it by where it was written."""

import functools
import gc
import warnings
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from typing import TypeAlias
from urllib.parse import quote

import pytest
from fastapi import APIRouter, Depends, FastAPI

from tests.asgi import App, Relay, app_of, http_scope, sent, statuses
from tests.ways import WAYS, Endpoint, Way
from throttled_views import Limiter, ThrottledRouter

Hello: TypeAlias = Callable[[], Coroutine[None, None, str]]


async def hello() -> str:
    """Be a handler."""
    return "hello"


def made(text: str) -> Hello:
    """Return a function; all of them have one name."""

    async def generated() -> str:
        return text

    return generated


def wrapped(handler: Hello) -> Hello:
    """Decorate *handler* without functools.wraps, so that it loses its name."""

    async def wrapper() -> str:
        return await handler()

    return wrapper


def nameless(text: str) -> Callable[[], str]:
    """Return a function without a name."""
    return lambda: text


async def said(text: str) -> str:
    """Say *text*, which is in the query or was given before."""
    return text


class Speaker:
    """An object with a method, and one that can be called."""

    __slots__ = ()

    def __call__(self) -> str:
        """Speak."""
        return "spoken"


NAME = f"{__name__}.made.<locals>.generated"


@contextmanager
def warned(name: str, number: int) -> Generator[None]:
    """Expect one warning, that *name* is the name of *number* objects."""
    says = f"{number} different objects named {name} are limited"
    with pytest.warns(UserWarning, match=says) as caught:
        yield
    assert 1 == len(caught)
    assert f"counts as '#{number}'" in str(caught[0].message)
    assert "Give its limits a bucket='…'" in str(caught[0].message)


def on_one_router(limiter: Limiter, *endpoints: Endpoint) -> FastAPI:
    """Put *endpoints* on a limited router, at /0, /1 and so on."""
    router = ThrottledRouter(limiter)
    for number, endpoint in enumerate(endpoints):
        router.add_api_route(f"/{number}", endpoint)
    return app_of(router)


async def keys_of(app: App, store: Relay, *requests: str) -> list[str]:
    """Send *requests*, and return the keys they were charged under."""
    store.calls.clear()
    assert [200] * len(requests) == await statuses(app, *requests)
    return store.keys


# --- names ----------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
async def test_a_key_names_the_function(way: Way) -> None:
    """It has the methods, the place of the function in the source, and the client."""
    store = Relay()
    app = way(Limiter("5/h", store=store), hello, methods=["POST", "GET"])

    (key,) = await keys_of(app, store, "GET /?not=in&the=key")

    prefix, method, route, principal, _name = key.split("|")
    assert ("throttled_views", "GET%2BPOST", "{192.0.2.1}") == (
        prefix,
        method,
        principal,
    )
    assert quote(f"{__name__}.hello", safe="") == route


async def test_a_key_does_not_depend_on_where_a_function_is() -> None:
    """Neither paths, prefixes nor mounts are in it, so none of them opens a bucket."""
    store = Relay()
    router = ThrottledRouter(Limiter("5/h", store=store))
    router.add_api_route("/items/{item}", hello)
    app = FastAPI()
    app.include_router(router, prefix="/v1")
    app.include_router(router, prefix="/v2")
    app.mount("/mounted", app_of(router))

    for path, root_path in (
        ("/v1/items/1", ""),
        ("/v2/items/2", ""),
        ("/mounted/items/3", ""),
        ("/proxy/v1/items/4", "/proxy"),
    ):
        start, _ = await sent(app, {**http_scope(path), "root_path": root_path})
        assert 200 == start["status"]

    assert 4 == len(store.keys)
    assert 1 == len({*store.keys})


async def test_a_wrapped_function_is_the_function() -> None:
    """functools.wraps keeps the name, and so the counts."""
    store = Relay()
    limiter = Limiter("5/h", store=store)

    @functools.wraps(hello)
    async def wrapper() -> str:
        return await hello()

    (key,) = await keys_of(on_one_router(limiter, wrapper), store, "GET /0")

    assert quote(f"{__name__}.hello", safe="") in key


async def test_a_partial_has_the_name_of_its_function() -> None:
    """What is called in the end is what keys tell of."""
    store = Relay()
    limiter = Limiter("5/h", store=store)

    app = on_one_router(limiter, functools.partial(said, text="hello"))
    (key,) = await keys_of(app, store, "GET /0")

    assert quote(f"{__name__}.said", safe="") in key


async def test_an_object_that_can_be_called_has_the_name_of_its_class() -> None:
    """Also one that nothing can refer to weakly."""
    store = Relay()
    limiter = Limiter("5/h", store=store)
    speaker = Speaker()

    (key, again) = await keys_of(
        on_one_router(limiter, speaker, speaker), store, "GET /0", "GET /1"
    )

    assert quote(f"{__name__}.Speaker", safe="") in key
    assert key == again


# --- objects of one name --------------------------------------------------------------


def partials() -> tuple[Endpoint, Endpoint, str]:
    """Return two partials of one function."""
    partial = functools.partial
    return partial(said, text="a"), partial(said, text="b"), f"{__name__}.said"


def generated() -> tuple[Endpoint, Endpoint, str]:
    """Return two functions that were made by another."""
    return made("a"), made("b"), NAME


def lambdas() -> tuple[Endpoint, Endpoint, str]:
    """Return two functions without a name."""
    return nameless("a"), nameless("b"), f"{__name__}.nameless.<locals>.<lambda>"


def objects() -> tuple[Endpoint, Endpoint, str]:
    """Return two objects of one class."""
    return Speaker(), Speaker(), f"{__name__}.Speaker"


def decorated() -> tuple[Endpoint, Endpoint, str]:
    """Return two functions that lost their names to a decorator."""
    return wrapped(made("a")), wrapped(hello), f"{__name__}.wrapped.<locals>.wrapper"


PAIRS = {
    "partials": partials,
    "generated functions": generated,
    "lambdas": lambdas,
    "objects": objects,
    "functions decorated without wraps": decorated,
}


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
async def test_different_objects_of_one_name_are_told_apart(
    pair: Callable[[], tuple[Endpoint, Endpoint, str]],
) -> None:
    """They have counts of their own, and the user is asked to name them, once."""
    first, second, name = pair()
    store = Relay()
    limiter = Limiter("1/h", store=store)

    with warned(name, 2):
        app = on_one_router(limiter, first, second)

    assert [200, 200, 429, 429] == await statuses(
        app, "GET /0", "GET /1", "GET /0", "GET /1"
    )
    assert "%232" not in store.keys[0]
    assert "%232" in store.keys[1]


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
async def test_the_second_of_a_name_is_warned_of_once(
    way: Way, caplog: pytest.LogCaptureFixture
) -> None:
    """However it is limited; in a log if a request finds it, which must not fail."""
    limiter = Limiter("1/h")
    first, second = made("a"), made("b")
    app = way(limiter, first)
    assert [200, 429] == await statuses(app, "GET /", "GET /")

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        other = way(limiter, second)
        assert [200, 429, 429] == await statuses(other, *["GET /"] * 3)

    told = [*map(str, (each.message for each in caught)), *caplog.messages]
    assert 1 == len(told)
    assert f"2 different objects named {NAME} are limited" in told[0]


@pytest.mark.parametrize("is_mounted", [False, True], ids=["flat", "mounted"])
async def test_requests_do_not_number_what_a_dependency_limits(
    *, is_mounted: bool
) -> None:
    """Processes that are asked in different orders count alike, as one that audits."""
    numbered: list[dict[str, str]] = []
    for order in (["/0", "/1/"], ["/1/", "/0"]):
        limiter = Limiter("9/h", store=(store := Relay()))
        limits = [Depends(limiter.dependency())]
        app, child = FastAPI(), FastAPI()
        app.add_api_route("/unlimited", made("u"))
        app.add_api_route("/0", made("a"), dependencies=limits)
        if is_mounted:
            app.mount("/1", child)
            child.add_api_route("/", made("b"), dependencies=limits)
        else:
            app.add_api_route("/1/", made("b"), dependencies=limits)
        keys = [await keys_of(app, store, f"GET {path}") for path in order]
        numbered.append({path: key for path, [key] in zip(order, keys, strict=True)})

    assert numbered[0] == numbered[1]
    assert "%232" in numbered[0]["/1/"]
    assert "%232" not in numbered[0]["/0"]


async def test_the_third_of_a_name_has_a_number_too() -> None:
    """A function that makes handlers in a loop is warned of each."""
    store = Relay()
    limiter = Limiter("1/h", store=store)
    first, second, third = made("a"), made("b"), made("c")
    router = ThrottledRouter(limiter)
    router.add_api_route("/first", first)

    with warned(NAME, 2):
        router.add_api_route("/second", second)
    with warned(NAME, 3):
        router.add_api_route("/third", third)

    keys = await keys_of(
        app_of(router), store, "GET /first", "GET /second", "GET /third"
    )
    assert 3 == len({*keys})


async def test_an_object_keeps_its_number() -> None:
    """Being put on another router, or on the same again, makes no new object of it."""
    limiter = Limiter("1/h")
    first, second = made("a"), made("b")
    with warned(NAME, 2):
        app = on_one_router(limiter, first, second)

    again = on_one_router(limiter, second, first)

    assert [200, 429] == [
        *await statuses(app, "GET /0"),
        *await statuses(again, "GET /1"),
    ]
    assert [200, 429] == [
        *await statuses(app, "GET /1"),
        *await statuses(again, "GET /0"),
    ]


async def test_limiters_number_for_themselves() -> None:
    """Objects of one name on two limiters are no reason for a warning."""
    one, two = Limiter("1/h"), Limiter("1/h")

    assert [200] == await statuses(on_one_router(one, made("a")), "GET /0")
    assert [200] == await statuses(on_one_router(two, made("b")), "GET /0")


async def test_a_bucket_names_what_has_no_name() -> None:
    """A limit with a bucket is counted by that name, and needs no number."""
    store = Relay()
    limiter = Limiter(store=store)
    app = FastAPI()
    first = limiter.limit("1/h", bucket="first")(made("a"))
    with warned(NAME, 2):
        second = limiter.limit("1/h", bucket="second")(made("b"))
    app.add_api_route("/first", first)
    app.add_api_route("/second", second)

    keys = await keys_of(app, store, "GET /first", "GET /second")

    assert ["%2A|first", "%2A|second"] == [
        "|".join(key.split("|")[1:3]) for key in keys
    ]


async def test_an_object_that_is_gone_gives_its_place_away() -> None:
    """What was forgotten, as when a module is loaded again, is not counted."""
    store = Relay()
    limiter = Limiter(store=store)
    gone = limiter.limit("1/h")(made("a"))
    del gone
    gc.collect()

    app = FastAPI()
    app.add_api_route("/", limiter.limit("1/h")(made("b")))

    assert ["%232" in key for key in await keys_of(app, store, "GET /")] == [False]


async def test_the_place_of_the_second_is_the_second_again() -> None:
    """Who comes for one that is gone has its counts, as after a restart."""
    store = Relay()
    limiter = Limiter(store=store)
    first = limiter.limit("1/h")(made("a"))
    with warned(NAME, 2):
        limiter.limit("1/h")(made("b"))
    gc.collect()

    app = FastAPI()
    app.add_api_route("/", limiter.limit("1/h")(made("c")))

    assert ["%232" in key for key in await keys_of(app, store, "GET /")] == [True]
    assert "a" == await first()


async def test_a_dependency_limits_by_what_it_is_used_on() -> None:
    """A decorated function, and one that is not, have their own names with it."""
    store = Relay()
    limiter = Limiter(store=store)
    limited = Depends(limiter.dependency("5/h"))
    router = APIRouter(dependencies=[limited])
    router.add_api_route("/", hello)
    router.add_api_route("/decorated", limiter.limit("5/h")(hello))

    keys = await keys_of(app_of(router), store, "GET /", "GET /decorated")

    routes = {key.split("|")[2] for key in keys}
    named = quote(f"{__name__}.hello", safe="")
    assert {named, f"{named}%232"} == routes
    assert 3 == len({*keys})


async def test_a_function_that_is_decorated_again_is_another_one() -> None:
    """The same function under two quotas has two counts, and is to be named."""
    limiter = Limiter()
    app = FastAPI()
    app.add_api_route("/often", limiter.limit("100/h")(hello))
    with warned(f"{__name__}.hello", 2):
        app.add_api_route("/once", limiter.limit("1/h")(hello))

    assert [200, 200, 200, 429] == await statuses(
        app, "GET /often", "GET /once", "GET /often", "GET /once"
    )


class Service:
    """An object whose methods are handlers."""

    async def hello(self) -> str:
        """Be a handler."""
        return "hello"


async def test_a_method_of_an_object_is_one_handler() -> None:
    """However often it is looked up, it is the same method of the same object."""
    service = Service()
    app = on_one_router(Limiter("1/h"), service.hello, service.hello)

    assert [200, 429] == await statuses(app, "GET /0", "GET /1")


async def test_methods_of_two_objects_are_two_handlers() -> None:
    """They have one name, so the user is asked to name them."""
    one, two = Service(), Service()
    with warned(f"{__name__}.Service.hello", 2):
        app = on_one_router(Limiter("1/h"), one.hello, two.hello)

    assert [200, 200, 429, 429] == await statuses(
        app, "GET /0", "GET /1", "GET /0", "GET /1"
    )
