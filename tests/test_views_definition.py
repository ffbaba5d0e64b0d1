"""What no view can be: each of these mistakes ends the class statement."""

import functools
import inspect
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from types import new_class
from typing import Annotated, Any, NamedTuple

import pytest
from fastapi import Body, Cookie, Depends, Query, Request, WebSocket
from starlette.requests import HTTPConnection

from tests.apps_views import app_of, body, view_of
from throttled_views import (
    EXEMPT,
    ConfigurationError,
    InvalidQuotaError,
    Limit,
    RegistrationError,
    ThrottledRouter,
    ThrottledView,
    ThrottledViewMeta,
    ViewDefinitionError,
    exempt,
    limit,
    route,
)

MADE = "tests.apps_views.Made"  # the name of all that `view_of` makes

# What stands in class bodies here, and could not be written there: checkers refuse it.


async def handler(self: object) -> str:
    """Be a handler."""
    return "served"


async def stream(self: object) -> AsyncIterator[str]:
    """Be a handler that streams."""
    yield "served"


def sync(self: object) -> str:
    """Be sync."""
    return ""


def generator(self: object) -> Iterator[str]:
    """Yield, and be sync."""
    yield ""


@functools.wraps(handler)
def sync_wrapper(self: object) -> object:
    """Return the coroutine of a handler, and look like the handler."""
    return handler(self)


def sync_wrapper_without_wraps(self: object) -> object:
    """Return the coroutine of a handler."""
    return handler(self)


async def wrapper_without_wraps(*args: Any, **kwargs: Any) -> object:  # noqa: ANN401
    """Await a handler whose parameters nobody can see."""
    return await handler(*args, **kwargs)


async def wrapper_with_self(self: object, *args: Any, **kwargs: Any) -> object:  # noqa: ANN401
    """Await a handler as the decorator of a method often does."""
    return await wrapper_without_wraps(self, *args, **kwargs)


async def without_self() -> str:
    """Take nothing."""
    return ""


async def with_keywords_only(*, number: int) -> int:
    """Take nothing by position."""
    return number


nameless: Callable[[object], str] = lambda self: ""  # noqa: E731


class AsyncCallable:
    """Has an async ``__call__``, and is not bound to an instance."""

    async def __call__(self) -> str:
        """Be called."""
        return ""


def place_of(function: Callable[..., object]) -> str:
    """Return where a message says that *function* stands."""
    return f"({__file__}:{inspect.unwrap(function).__code__.co_firstlineno})"


class Form(NamedTuple):
    """Something that is no handler, why not, what to write, and where it stands."""

    value: object
    problem: str
    remedy: str
    place: str = ""


SYNC = "it is not async"
LOST = "its parameters were lost, so FastAPI could not fill them"
NO_SELF = "it takes no self"
IN_THREAD = "await fastapi.concurrency.run_in_threadpool(…)"
AS_METHOD = "Write 'async def get(self, …)'"

FORMS = {
    "def": Form(sync, SYNC, IN_THREAD, place_of(sync)),
    "generator": Form(generator, SYNC, IN_THREAD, place_of(generator)),
    "lambda": Form(nameless, SYNC, "async def", place_of(nameless)),
    "partial": Form(
        functools.partial(handler),
        "a functools.partial is no method",
        "Use functools.partialmethod of an async function",
        place_of(handler),
    ),
    "staticmethod": Form(
        staticmethod(handler),
        "a staticmethod is not called on an instance",
        f"{AS_METHOD} without the decorator",
        place_of(handler),
    ),
    "classmethod": Form(
        classmethod(handler),
        "a classmethod is not called on an instance",
        f"{AS_METHOD} without the decorator",
        place_of(handler),
    ),
    "callable object": Form(AsyncCallable(), SYNC, "async def"),
    "class": Form(AsyncCallable, SYNC, "async def"),
    "property": Form(property(handler), "<property object", "async def"),
    "int": Form(3, "it is 3, not an async method", "async def"),
    "None": Form(None, "it is None, not an async method", "async def"),
    "sync wrapper": Form(
        sync_wrapper,
        "it is a sync wrapper around a handler",
        "in the decorator too, and await the handler there",
        place_of(handler),
    ),
    "sync wrapper without wraps": Form(
        sync_wrapper_without_wraps,
        SYNC,
        "async def",
        place_of(sync_wrapper_without_wraps),
    ),
    "async wrapper without wraps": Form(
        wrapper_without_wraps,
        LOST,
        "functools.wraps in the decorator around it",
        place_of(wrapper_without_wraps),
    ),
    "without self": Form(without_self, NO_SELF, AS_METHOD, place_of(without_self)),
    "with keywords only": Form(
        with_keywords_only, NO_SELF, AS_METHOD, place_of(with_keywords_only)
    ),
}


FORMS_TO_REFUSE = [
    *(pytest.param(form, id=name) for name, form in FORMS.items()),
    pytest.param(
        Form(
            wrapper_with_self,
            LOST,
            "functools.wraps in the decorator around it",
            place_of(wrapper_with_self),
        ),
        id="async wrapper with self without wraps",
    ),
    pytest.param(
        Form(property(handler), "", "async def", place_of(handler)),
        id="property with a place",
    ),
]


@pytest.mark.parametrize("form", FORMS_TO_REFUSE)
def test_a_handler_is_an_async_method(form: Form) -> None:
    """Anything else under the name of a verb is refused, and told what to be."""
    with pytest.raises(ViewDefinitionError) as caught:
        view_of(("throttle", "5/m"), ("get", form.value))

    assert caught.value.subject.startswith(f"{MADE}.get")
    assert form.place in caught.value.subject
    assert form.problem in str(caught.value)
    assert form.remedy in str(caught.value)


DECORATORS: dict[str, Callable[[Any], Any]] = {
    "route": route.get("/x"),
    "limit": limit("5/m"),
    "exempt": exempt,
    "limit and route": lambda method: limit("5/m")(route.get("/x")(method)),
}


@pytest.mark.parametrize("decorate", DECORATORS.values(), ids=DECORATORS)
def test_a_decorated_handler_is_an_async_method(
    decorate: Callable[[Any], Any],
) -> None:
    """Under each decorator of handlers a sync method is refused all the same."""

    def decorated(self: object) -> str:
        return ""

    with pytest.raises(ViewDefinitionError, match=SYNC) as caught:
        view_of(("throttle", "5/m"), ("get", decorate(decorated)))

    assert f"{MADE}.get {place_of(decorated)}" == caught.value.subject


def test_a_decorator_cannot_lose_a_limit() -> None:
    """A limit below a decorator without wraps is found, or the handler is refused."""

    def decorate(method: Callable[..., Any]) -> Any:  # noqa: ANN401
        async def wrapper(self: object, *args: object, **kwargs: object) -> object:
            return await method(self, *args, **kwargs)

        return wrapper

    async def limited(self: object) -> None:
        pass

    with pytest.raises(ViewDefinitionError, match=LOST):
        view_of(("throttle", "100/m"), ("get", decorate(limit("1/m")(limited))))


def hiding(method: Callable[..., Any]) -> Any:  # noqa: ANN401
    """Decorate a method that takes nothing, and show nothing of it."""

    async def wrapper(self: object) -> object:
        return await method(self)

    return wrapper


MARKS: dict[str, Callable[[Any], Any]] = {
    "limit": limit("1/m"),
    "exempt": exempt,
    "route": route.post(""),
}


@pytest.mark.parametrize("mark", MARKS.values(), ids=MARKS)
def test_a_decorator_cannot_hide_a_declaration(mark: Callable[[Any], Any]) -> None:
    """What stands below a decorator without wraps would not hold, so it is refused."""

    def define() -> type[ThrottledView]:
        class View(ThrottledView):
            throttle = "100/m"

            @hiding
            @mark
            async def get(self) -> None:
                pass

        return View

    with pytest.raises(ViewDefinitionError) as caught:
        define()

    assert "<locals>.View.get (" in caught.value.subject
    assert __file__ in caught.value.subject
    assert "hides it" in str(caught.value)
    assert "functools.wraps" in str(caught.value)


def test_a_decorator_cannot_hide_a_declaration_in_a_mixin() -> None:
    """The same holds for what a view gets from a class that is none."""

    class Mixin:
        @hiding
        @limit("1/m")
        async def get(self) -> None:
            pass

    with pytest.raises(ViewDefinitionError, match="hides it"):
        view_of(("throttle", "100/m"), bases=(Mixin, ThrottledView))


@pytest.mark.parametrize("decorate", [staticmethod, classmethod])
def test_a_method_with_a_route_is_called_on_an_instance(
    decorate: Callable[[Any], Any],
) -> None:
    """Above a route, too, staticmethod and classmethod are refused."""

    async def find(self: object) -> None:
        pass

    with pytest.raises(ViewDefinitionError, match=f"a {decorate.__name__} is not call"):
        view_of(("throttle", "5/m"), ("find", decorate(route.get("/x")(find))))


@pytest.mark.parametrize(
    "base", [type("Mixin", (), {"get": sync}), dict], ids=["mixin", "dict"]
)
def test_an_inherited_handler_is_an_async_method(base: type) -> None:
    """All bases are looked at: a plain mixin's get, or dict.get, is no handler."""
    with pytest.raises(ViewDefinitionError, match=SYNC) as caught:
        view_of(("throttle", "5/m"), bases=(base, ThrottledView))

    assert caught.value.subject.startswith(f"{MADE}.get")


async def test_an_async_wrapper_may_be_around_anything() -> None:
    """What counts is the function that Python calls, not what is wrapped in it."""

    class View(ThrottledView):
        throttle = "5/m"

        @route.get("")
        @functools.wraps(sync)
        async def find(self) -> str:
            return "awaited"

    assert "awaited" == await body(app_of(View))


async def test_a_partialmethod_may_be_a_handler() -> None:
    """It is a method, with some of its parameters given."""

    async def repeat(self: object, name: str, number: int = 1) -> str:
        return name * number

    view = view_of(("throttle", "5/m"), ("get", functools.partialmethod(repeat, "a")))

    assert "aaa" == await body(app_of(view), "GET /v?number=3")


class Compiled:
    """A coroutine function as Cython makes one: it has code, and no globals."""

    def __init__(self, function: Any) -> None:  # noqa: ANN401
        self.function = function
        self.__name__ = function.__name__
        self.__code__ = function.__code__
        self.__defaults__ = function.__defaults__
        self.__kwdefaults__ = function.__kwdefaults__
        self.__annotations__ = function.__annotations__

    def __get__(self, instance: object, owner: type) -> Any:  # noqa: ANN401
        return self if instance is None else functools.partial(self, instance)

    def __call__(self, *args: object, **kwargs: object) -> object:
        """Be called."""
        return self.function(*args, **kwargs)


async def test_a_compiled_function_may_be_a_handler() -> None:
    """Whatever Python itself takes for a coroutine function is one."""

    async def get(self: object, number: int = 1) -> int:
        return number

    view = view_of(("throttle", "5/m"), ("get", Compiled(get)))

    assert 3 == await body(app_of(view), "GET /v?number=3")


# --- defined twice --------------------------------------------------------------------


def test_a_handler_is_defined_once() -> None:
    """Of two handlers of one name in a class body the first would be lost unseen."""

    async def again(self: object) -> str:
        return ""

    with pytest.raises(ViewDefinitionError) as caught:
        view_of(("throttle", "5/m"), ("get", handler), ("get", again))

    assert caught.value.subject.endswith(f"get {place_of(again)}")
    assert f"is defined twice, first {place_of(handler)}" in str(caught.value)
    assert "Rename one, and give it its route: @route.get(" in str(caught.value)


def test_a_handler_with_a_route_is_defined_once() -> None:
    """Handlers of one name are refused even if their paths differ."""

    def define() -> type[ThrottledView]:
        class View(ThrottledView):
            @route.get("/a")
            async def find(self) -> None:  # pyright: ignore[reportRedeclaration]
                pass

            @route.get("/b")  # type: ignore[no-redef]
            async def find(self) -> None:  # noqa: F811
                pass

        return View

    with pytest.raises(ViewDefinitionError, match="the handler is defined twice"):
        define()


@pytest.mark.parametrize("again", [handler, None], ids=["method", "None"])
def test_a_handler_is_not_replaced_by_what_is_none(again: object) -> None:
    """A second definition without the route would take the first one away unseen."""

    async def find(self: object) -> None:
        pass

    with pytest.raises(ViewDefinitionError, match="the handler is defined twice"):
        view_of(("find", route.get("/x")(find)), ("find", again))


def test_a_handler_that_is_defined_twice_is_named_with_its_class() -> None:
    """The message says which class it is."""

    async def again(self: object) -> str:
        return ""

    with pytest.raises(ViewDefinitionError, match=r"Made\.get"):
        view_of(("get", handler), ("get", again))


async def test_a_handler_may_be_decorated_later_in_the_body() -> None:
    """The same function under the same name again is no second definition."""

    class View(ThrottledView):
        async def get(self) -> str:
            return "served"

        get = limit("1/m")(get)

    assert "served" == await body(app_of(View))
    assert ["1/m"] == [str(each.quota) for each in View.throttled["get"].limits]


async def test_helpers_may_be_defined_twice() -> None:
    """What is no handler is Python's own business."""

    class View(ThrottledView):
        throttle = "5/m"

        @property
        def name(self) -> str:
            return self._name

        @name.setter
        def name(self, value: str) -> None:
            self._name = value

        async def get(self) -> str:
            self.name = "set"
            return self.name

    assert "set" == await body(app_of(View))


# --- overrides ------------------------------------------------------------------------


class Declared(ThrottledView):
    """Has handlers whose declarations an override could lose."""

    throttle = "5/m"

    @route.get("/x")
    async def routed(self) -> None:
        """Have a route."""

    @limit("1/m")
    async def get(self) -> None:
        """Have a limit."""

    @limit("1/m")
    @route.get("/y")
    async def both(self) -> None:
        """Have a limit and a route."""


class Between(Declared):
    """Overrides nothing."""


DROPPED = {
    "its route": ("routed", handler, "drops its @route"),
    "its limit": ("get", handler, "drops its @limit"),
    "both": ("both", handler, "drops its @route"),
    "being a method": ("routed", None, "drops its @route"),
}


@pytest.mark.parametrize("base", [Declared, Between], ids=["next", "far"])
@pytest.mark.parametrize(("name", "value", "problem"), DROPPED.values(), ids=DROPPED)
def test_an_override_keeps_what_was_declared(
    base: type, name: str, value: object, problem: str
) -> None:
    """An override without the decorator would be unreachable, or limited otherwise."""
    place = f" {place_of(handler)}" if value else ""

    with pytest.raises(ViewDefinitionError) as caught:
        view_of((name, value), bases=(base,))

    assert f"{MADE}.{name}{place}" == caught.value.subject
    assert f"it overrides a handler and {problem}" in str(caught.value)
    assert "decorator on the override" in str(caught.value)


def test_an_override_by_a_mixin_keeps_what_was_declared() -> None:
    """A mixin before the view overrides as a subclass does."""
    mixin = type("Mixin", (), {"get": handler})

    with pytest.raises(ViewDefinitionError, match=r"Made\.get .*drops its @limit"):
        view_of(bases=(mixin, Declared))


@pytest.mark.parametrize(
    ("decorate", "expected"),
    [
        pytest.param(limit("3/m"), ["3/m"], id="another limit"),
        pytest.param(exempt, [], id="exempt"),
    ],
)
def test_an_override_may_declare_otherwise(
    decorate: Callable[[Any], Any], expected: list[str]
) -> None:
    """A limit is replaced by another, or removed, where that is said."""

    class View(Declared):
        @decorate
        async def get(self) -> None:
            pass

    assert expected == [str(each.quota) for each in View.throttled["get"].limits]


def test_an_override_of_an_exempt_handler_is_limited() -> None:
    """What drops @exempt is limited as its class is: nothing gets open by that."""

    class Exempt(ThrottledView):
        throttle = "5/m"

        @exempt
        async def get(self) -> None:
            pass

    class View(Exempt):
        async def get(self) -> None:
            pass

    assert ["5/m"] == [str(each.quota) for each in View.throttled["get"].limits]


# --- values that would not be injected ------------------------------------------------

VALUES = {
    "Depends": Depends(handler),
    "Query": Query(),
    "Cookie": Cookie(),
    "Body": Body(),
}


@pytest.mark.parametrize("name", VALUES)
def test_an_injected_value_has_an_annotation(name: str) -> None:
    """Without one it would stay what it is: a marker, instead of a value."""
    with pytest.raises(ViewDefinitionError) as caught:
        view_of(("locale", VALUES[name]))

    assert f"{MADE}.locale" == caught.value.subject
    assert "it has no annotation, so nothing would be injected" in str(caught.value)
    assert f"Write 'locale: Annotated[<type>, {name}(…)]'" in str(caught.value)


def test_an_injected_value_of_a_mixin_has_an_annotation() -> None:
    """All bases are looked at, those that are no views too."""
    mixin = type("Mixin", (), {"locale": Depends(handler)})

    with pytest.raises(ViewDefinitionError, match=rf"{MADE}\.locale: it has no annot"):
        view_of(bases=(mixin, ThrottledView))


# --- limits that cannot be honoured ---------------------------------------------------


class Refused(NamedTuple):
    """A declaration, the error it is, and what the message has."""

    value: Any
    error: type[ConfigurationError]
    message: str


def by_any(request: Request, *names: str) -> str:
    """Take more than can be told."""
    return "".join(names)


def by_place(name: str, /) -> str:
    """Take what FastAPI gives by keyword."""
    return name


nameless_cost: Callable[[Request, str], int] = lambda request, name: 1  # noqa: E731
nameless_by_two: Callable[[Request, str], str] = lambda request, name: name  # noqa: E731


def quota_by_place(name: str, /) -> str:
    """Choose a quota by what FastAPI gives by keyword."""
    return name


NO_QUOTA = InvalidQuotaError, "Write '<limit>/<period>', for example '100/m'"
THROTTLES = {
    "an unknown unit": Refused("5/fortnight", *NO_QUOTA),
    "a number": Refused(5, *NO_QUOTA),
    "a class": Refused(int, *NO_QUOTA),
    "a mapping": Refused({"5/m": 1}, *NO_QUOTA),
    "one bad of two": Refused("5/m; 5/x", *NO_QUOTA),
    "one bad of a list": Refused(["5/m", 5], *NO_QUOTA),
    "an empty list": Refused([], ConfigurationError, "Write EXEMPT if that is meant"),
    "exempt in a list": Refused(
        ["5/m", EXEMPT], ConfigurationError, "Write it instead of the list"
    ),
    "twice the same": Refused(
        ["5/m", "5/m"], ConfigurationError, "Remove one, or give each a name"
    ),
    "a quota function by position": Refused(
        quota_by_place,
        ConfigurationError,
        "Write 'def quota_by_place(request: Request)'",
    ),
    "a key function by position": Refused(
        Limit("5/m", key_func=by_place),
        ConfigurationError,
        "Write 'def by_place(request: Request)'",
    ),
    "a cost function of two": Refused(
        Limit("5/m", cost=nameless_cost), ConfigurationError, "(request: Request)'"
    ),
}


@pytest.mark.parametrize("refused", THROTTLES.values(), ids=THROTTLES)
def test_a_throttle_is_checked_when_the_class_is_made(refused: Refused) -> None:
    """What cannot be honoured is refused, with the handler that it is declared for."""
    with pytest.raises(refused.error) as caught:
        view_of(("throttle", refused.value), ("get", handler))

    assert refused.message in str(caught.value)
    assert [f"It is declared for {MADE}.get {place_of(handler)}"] == (
        caught.value.__notes__
    )


LIMITS: dict[str, tuple[list[Any], dict[str, Any], type[ConfigurationError], str]] = {
    "nothing": ([], {}, ConfigurationError, "Write for example @limit('5/m')"),
    "a bad quota": (["5/x"], {}, *NO_QUOTA),
    "a number": ([5], {}, *NO_QUOTA),
    "exempt and a quota": (
        ["5/m", EXEMPT],
        {},
        ConfigurationError,
        "Write @exempt instead, or remove it",
    ),
    "twice the same": (["5/m", "5/m"], {}, ConfigurationError, "Remove one"),
    "a cost above the capacity": (
        ["5/m"],
        {"cost": 6},
        ConfigurationError,
        "could never admit a request",
    ),
    "a negative cost": (["5/m"], {"cost": -1}, ConfigurationError, "cost=1"),
    "a key function of any number": (
        ["5/m"],
        {"key_func": by_any},
        ConfigurationError,
        "Write 'def by_any(request: Request)'",
    ),
    "a name that is not ASCII": (
        ["5/m"],
        {"name": "täglich"},
        ConfigurationError,
        "name='daily'",
    ),
    "options for a finished limit": (
        [Limit("5/m")],
        {"cost": 2},
        ConfigurationError,
        "Write it in the Limit: Limit(…, cost=…)",
    ),
}


@pytest.mark.parametrize(
    ("throttles", "options", "error", "message"), LIMITS.values(), ids=LIMITS
)
def test_a_limit_is_checked_when_it_is_written(
    throttles: list[Any],
    options: Mapping[str, Any],
    error: type[ConfigurationError],
    message: str,
) -> None:
    """@limit refuses what cannot be honoured, before it decorates anything."""
    with pytest.raises(error) as caught:
        limit(*throttles, **options)

    assert message in str(caught.value)


def test_a_cost_above_the_capacity_is_refused() -> None:
    """No request could ever pass, so the limit itself is an error."""
    with pytest.raises(ConfigurationError, match="costs more than the capacity of 5"):
        Limit("5/m", cost=6)


KEY_FUNCTIONS: dict[str, tuple[object, str]] = {
    "any number": (by_any, "Write 'def by_any(request: Request)'"),
    "by position": (by_place, "Write 'def by_place(request: Request)'"),
    "a lambda of two": (nameless_by_two, "(request: Request)'"),
    "self": (sync, "Write 'def sync(request: Request)'"),
    "a text": ("X-Tenant", "Write for example key_func=client_ip"),
    "a class": (str, "Write for example key_func=client_ip"),
    "a classmethod": (classmethod(sync), "Write for example key_func=client_ip"),
}


@pytest.mark.parametrize(
    ("key_func", "remedy"), KEY_FUNCTIONS.values(), ids=KEY_FUNCTIONS
)
def test_a_key_function_is_checked_when_the_class_is_made(
    key_func: object, remedy: str
) -> None:
    """It takes what FastAPI can solve, or is refused."""
    with pytest.raises(ConfigurationError) as caught:
        view_of(("key_func", key_func))

    assert remedy in str(caught.value)


@pytest.mark.parametrize(
    ("key_func", "remedy"), KEY_FUNCTIONS.values(), ids=KEY_FUNCTIONS
)
def test_a_key_function_is_named_with_its_class(key_func: object, remedy: str) -> None:
    """The message says where the key function is declared."""
    with pytest.raises(ConfigurationError) as caught:
        view_of(("key_func", key_func))

    notes: list[str] = getattr(caught.value, "__notes__", [])
    assert f"{MADE}.key_func" in "".join([str(caught.value), *notes])


PATHS = {"without a slash": "items", "bytes": b"/items", "a number": 5}


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
def test_a_path_begins_with_a_slash(path: object) -> None:
    """What is no path is refused, and told what one looks like."""
    with pytest.raises(ViewDefinitionError) as caught:
        view_of(("path", path))

    assert f"{MADE}.path" == caught.value.subject
    assert f"{path!r} is no path. Write for example '/items'" in str(caught.value)


def test_a_path_does_not_end_with_a_slash_before_others() -> None:
    """FastAPI refuses such a prefix; what it would make of "/x" is no path either."""

    async def find(self: object) -> str:
        return "found"

    with pytest.raises(ConfigurationError, match="slash"):
        app_of(
            view_of(
                ("throttle", "5/m"),
                ("path", "/items/"),
                ("find", route.get("/x")(find)),
            )
        )


def test_tags_are_a_list() -> None:
    """A text is a sequence to type checkers, and no list of tags."""
    with pytest.raises(ConfigurationError, match="tags"):
        view_of(("tags", "items"), ("throttle", "5/m"), ("get", handler))


def test_dependencies_are_what_depends_returns() -> None:
    """A function in place of Depends(function) is told so by the class statement."""
    with pytest.raises(ConfigurationError, match="dependencies"):
        app_of(view_of(("throttle", "5/m"), ("dependencies", [sync]), ("get", handler)))


def test_a_bucket_has_a_name() -> None:
    """The name of a bucket is checked though no limit of the view needs it yet."""
    with pytest.raises(ConfigurationError, match="not printable ASCII") as caught:
        view_of(("bucket", "täglich"))

    assert [f"It is declared as {MADE}.bucket"] == caught.value.__notes__


def test_an_algorithm_is_one_that_counts() -> None:
    """An unknown algorithm is refused with the names of those there are."""
    with pytest.raises(ConfigurationError, match=r"Algorithm\.TOKEN_BUCKET"):
        view_of(("using", "guesswork"))


def test_a_limit_is_on_a_handler() -> None:
    """A limit on a method that no request reaches would protect nothing."""

    async def find(self: object) -> None:
        pass

    with pytest.raises(ViewDefinitionError) as caught:
        view_of(("throttle", "5/m"), ("find", limit("1/m")(find)))

    assert f"{MADE}.find {place_of(find)}" == caught.value.subject
    assert "no route leads to it" in str(caught.value)
    assert "add @route.get(" in str(caught.value)


TWO_LIMITS: dict[str, Callable[[Any], Any]] = {
    "two limits": lambda method: limit("5/m")(limit("100/h")(method)),
    "limit and exempt": lambda method: limit("5/m")(exempt(method)),
    "exempt and limit": lambda method: exempt(limit("5/m")(method)),
}


@pytest.mark.parametrize("decorate", TWO_LIMITS.values(), ids=TWO_LIMITS)
def test_a_handler_has_one_of_limit_and_exempt(
    decorate: Callable[[Any], Any],
) -> None:
    """Two of them would say two things, and only one could be true."""

    async def get(self: object) -> None:
        pass

    with pytest.raises(ViewDefinitionError, match="two of @limit and @exempt"):
        decorate(get)


# --- two handlers for one request -----------------------------------------------------

SAME: dict[str, tuple[Callable[[Any], Any], str]] = {
    "the same route": (route.get("/x"), "GET '/x' of the view is served by first"),
    "among others": (
        route.api_route("/x", methods=["POST", "get"]),
        "GET '/x' of the view is served by first",
    ),
    "without a path": (route.get(""), "GET '' of the view is served by get"),
}


@pytest.mark.parametrize(("decorate", "problem"), SAME.values(), ids=SAME)
def test_a_path_and_method_have_one_handler(
    decorate: Callable[[Any], Any], problem: str
) -> None:
    """Of two handlers for one method and path the second would never be called."""

    async def first(self: object) -> None:
        pass

    async def second(self: object) -> None:
        pass

    with pytest.raises(ViewDefinitionError) as caught:
        view_of(
            ("throttle", "5/m"),
            ("get", handler),
            ("first", route.get("/x")(first)),
            ("second", decorate(second)),
        )

    assert f"{MADE}.second {place_of(second)}" == caught.value.subject
    assert f"{problem}. Give it a path of its own" in str(caught.value)


def test_a_subclass_cannot_serve_what_its_base_serves() -> None:
    """The routes of bases count too."""

    async def mine(self: object) -> None:
        pass

    with pytest.raises(ViewDefinitionError, match=r"Made\.mine.*served by routed"):
        view_of(("mine", route.get("/x")(mine)), bases=(Declared,))


def test_other_methods_of_a_path_have_their_own_handlers() -> None:
    """One path may have a handler for each HTTP method."""

    class View(Declared):
        @route.post("/x")
        async def mine(self) -> None:
            pass

    assert {"routed", "get", "both", "mine"} == set(View.throttled)


# --- sockets --------------------------------------------------------------------------


def test_a_path_has_one_socket() -> None:
    """Of two handlers for the sockets of a path the second would never be called."""

    async def first(self: object, websocket: WebSocket) -> None:
        pass

    async def second(self: object, websocket: WebSocket) -> None:
        pass

    with pytest.raises(ViewDefinitionError, match="is served by first"):
        view_of(
            ("throttle", "5/m"),
            ("first", route.websocket("/ws")(first)),
            ("second", route.websocket("/ws")(second)),
        )


ROLES: dict[str, Callable[[Any], Limit]] = {
    "key": lambda function: Limit("5/m", key_func=function),
    "quota": Limit,
    "cost": lambda function: Limit("5/m", cost=function),
}


def of_request(request: Request) -> str:
    """Want a request."""
    return request.method


def of_connection(connection: HTTPConnection) -> str:
    """Want what a socket is too."""
    return connection.url.path


@pytest.mark.parametrize("role", ROLES)
def test_a_socket_has_no_request_for_a_function(role: str) -> None:
    """A function of a Request would fail when the first client connects."""

    async def talk(self: object, websocket: WebSocket) -> None:
        pass

    decorate = limit(ROLES[role](of_request))
    with pytest.raises(ViewDefinitionError) as caught:
        view_of(("talk", decorate(route.websocket("/ws")(talk))))

    assert f"{__name__}.of_request" == caught.value.subject
    assert "Annotate its parameter HTTPConnection" in str(caught.value)
    assert [f"It is declared for {MADE}.talk {place_of(talk)}"] == (
        caught.value.__notes__
    )


@pytest.mark.parametrize("role", ROLES)
def test_a_socket_has_a_connection_for_a_function(role: str) -> None:
    """A function of an HTTPConnection serves sockets as well as requests."""

    class View(ThrottledView):
        @limit(ROLES[role](of_connection))
        @route.websocket("/ws")
        async def talk(self, websocket: WebSocket) -> None:
            pass

    assert {"talk"} == set(View.throttled)


# --- functions that are no methods ----------------------------------------------------


async def plain(number: int) -> int:
    """Be a function of a module."""
    return number


FOR_METHODS: dict[str, tuple[Callable[[Any], Any], str, str]] = {
    "limit": (limit("5/m"), "@limit(…)", "@limiter.limit(…)"),
    "exempt": (exempt, "@exempt", "@limiter.exempt"),
    "route": (route.get("/x"), "@route.get(…)", "@router.get(…)"),
    "socket": (route.websocket("/x"), "@route.websocket(…)", "@router.websocket(…)"),
}


@pytest.mark.parametrize(
    ("decorate", "name", "instead"), FOR_METHODS.values(), ids=FOR_METHODS
)
def test_decorators_of_methods_refuse_functions(
    decorate: Callable[[Any], Any], name: str, instead: str
) -> None:
    """On a plain function they would do nothing, so they say what does."""

    async def local(number: int) -> int:
        return number

    for function in (plain, local):
        with pytest.raises(ViewDefinitionError) as caught:
            decorate(function)

        assert f"{__name__}.{function.__qualname__}" == caught.value.subject
        assert f"{name} is for methods of a ThrottledView" in str(caught.value)
        assert f"Write {instead} on a function" in str(caught.value)


def test_decorators_of_methods_refuse_partials() -> None:
    """What is made of a plain function is none of a view's either."""
    decorate: Callable[[Any], Any] = limit("5/m")

    with pytest.raises(ViewDefinitionError) as caught:
        decorate(functools.partial(plain, number=1))

    assert f"{__name__}.plain" == caught.value.subject


async def test_a_function_with_a_self_is_a_method_to_be() -> None:
    """What is written outside may be put into a class later."""

    async def find(self: ThrottledView) -> str:
        return type(self).__name__

    view = view_of(("throttle", "5/m"), ("find", route.get("/x")(find)))

    assert "Made" == await body(app_of(view), "GET /v/x")


async def test_a_partialmethod_may_be_decorated() -> None:
    """It has no name of its own, and can only be a method."""
    find: Any = functools.partialmethod(handler)
    decorate: Callable[[Any], Any] = limit("5/m")

    view = view_of(("find", decorate(route.get("/x")(find))))

    assert "served" == await body(app_of(view), "GET /v/x")


async def test_a_partialmethod_may_be_made_and_decorated_in_a_class() -> None:
    """What it is made of may be a method of the same class."""
    given: Any = functools.partialmethod
    decorate: Callable[[Any], Any] = limit("5/m")

    class View(ThrottledView):
        async def _serve(self, text: str) -> str:
            return text

        get = decorate(given(_serve, "given"))

    assert "given" == await body(app_of(View))
    assert ["5/m"] == [str(each.quota) for each in View.throttled["get"].limits]


def test_a_failed_class_statement_leaves_nothing_behind() -> None:
    """A class that is written again, after an error in it, is a class of its own."""

    def define(view_path: str, decorate: Callable[[Any], Any]) -> type[ThrottledView]:
        class View(ThrottledView):
            path = view_path
            throttle = "5/m"

            @decorate
            async def get(self) -> None:
                pass

        return View

    with pytest.raises(ViewDefinitionError, match="is no path"):
        define("bad", limit("1/m"))
    view = define("/good", lambda method: method)

    assert ["5/m"] == [str(each.quota) for each in view.throttled["get"].limits]


# --- what registration finds ----------------------------------------------------------


async def by_position(self: object, number: int, /, other: int) -> int:
    """Take a parameter that FastAPI, which gives all by name, could not give."""
    return number + other


def test_a_parameter_of_a_handler_can_be_given_by_name() -> None:
    """A positional-only parameter is refused at registration, and named."""
    view = view_of(("throttle", "5/m"), ("get", by_position))

    with pytest.raises(ViewDefinitionError) as caught:
        app_of(view)

    assert f"{MADE}.get {place_of(by_position)}" == caught.value.subject
    assert "'number' can only be given by position" in str(caught.value)
    assert "Remove the '/'" in str(caught.value)


def test_a_parameter_of_a_constructor_can_be_given_by_name() -> None:
    """The same holds for what is injected into __init__."""

    class View(ThrottledView):
        throttle = "5/m"

        def __init__(
            self, name: Annotated[str, Query()], /, other: Annotated[str, Query()]
        ) -> None:
            self.names = name + other

        async def get(self) -> str:
            return self.names

    with pytest.raises(ViewDefinitionError) as caught:
        app_of(View)

    assert "<locals>.View.__init__ (" in caught.value.subject
    assert "'name' can only be given by position" in str(caught.value)


async def with_more_by_name(self: object, **more: object) -> int:
    """Take anything by name."""
    return len(more)


async def with_more_by_position(self: object, number: int, *more: object) -> int:
    """Take anything by position."""
    return number + len(more)


@pytest.mark.parametrize("method", [with_more_by_name, with_more_by_position])
def test_a_parameter_of_a_handler_is_one_parameter(method: Callable[..., Any]) -> None:
    """FastAPI gives nothing to *args and **kwargs, so they are refused."""
    injected = {"request": Request}

    with pytest.raises(ViewDefinitionError, match=r"Made\.get"):
        app_of(
            view_of(("throttle", "5/m"), ("__annotations__", injected), ("get", method))
        )


def test_a_view_without_handlers_is_not_registered() -> None:
    """A class that serves nothing is a mistake where one is registered."""

    class View(ThrottledView):
        throttle = "5/m"

    with pytest.raises(RegistrationError) as caught:
        app_of(View)

    assert caught.value.subject.endswith("<locals>.View")
    assert "it has no handlers" in str(caught.value)
    assert "write 'async def get(self)'" in str(caught.value)


def test_a_class_that_is_no_view_is_not_registered() -> None:
    """Only the metaclass makes what a router can register."""
    other: Any = type("Other", (), {"get": handler})

    with pytest.raises(RegistrationError, match="it has no handlers"):
        app_of(other)


def test_views_have_a_metaclass() -> None:
    """Whoever derives from a view is checked, however it is derived."""
    with pytest.raises(ViewDefinitionError, match=SYNC):
        type("Dynamic", (ThrottledView,), {"throttle": "5/m", "get": sync})

    assert isinstance(ThrottledView, ThrottledViewMeta)


def test_a_route_without_its_path_is_refused() -> None:
    """The bare decorator would take the handler for a path."""
    bare: Any = route.get

    with pytest.raises(ViewDefinitionError, match=r"Write @route\.get\('/…'\)"):
        bare(handler)


def test_a_handler_of_a_finished_class_is_not_replaced() -> None:
    """What was checked is what serves; a setting cannot be deleted either."""

    class View(ThrottledView):
        throttle = "5/m"

        @route.get("/x")
        async def find(self) -> None:
            pass

    with pytest.raises(
        ViewDefinitionError, match="it was read when the class was made"
    ):
        setattr(View, "find", handler)  # noqa: B010 - checkers refuse it, too
    with pytest.raises(
        ViewDefinitionError, match="it was read when the class was made"
    ):
        del View.throttle


NEARLY = {"throtle": "throttle", "keyfunc": "key_func", "key_function": "key_func"}


@pytest.mark.parametrize(("written", "meant"), NEARLY.items(), ids=NEARLY)
def test_a_misspelt_setting_is_refused(written: str, meant: str) -> None:
    """It would be left out without a word, and the view be limited otherwise."""
    with pytest.raises(
        ViewDefinitionError, match=f"nearly '{meant}'. Write {meant} = "
    ):
        view_of((written, "5/m"))


def test_a_misspelt_setting_of_a_mixin_is_refused() -> None:
    """It need not be a view itself."""

    class Mixin:
        throtle = "5/m"

    with pytest.raises(ViewDefinitionError, match="nearly 'throttle'"):
        new_class("View", (Mixin, ThrottledView))


@pytest.mark.parametrize("value", ["5/m", handler])
def test_what_a_view_gets_is_no_setting_of_it(value: object) -> None:
    """It would be written over without a word."""
    with pytest.raises(ViewDefinitionError, match="it is what a view gets"):
        view_of(("throttled", value))


@pytest.mark.parametrize(
    "name", ["on_store_error", "shadow", "refund_when", "max_delay"]
)
def test_an_option_of_limits_is_no_setting_of_a_view(name: str) -> None:
    """It would be left out without a word, and the view be limited otherwise."""
    with pytest.raises(ViewDefinitionError, match=rf"Limit\('100/m', {name}=…\)"):
        view_of((name, "deny"))


def test_a_decorator_without_parentheses_is_refused() -> None:
    """It would take the handler for a function that chooses a quota."""
    bare: Any = limit

    async def find(self: object) -> dict[str, str]:
        return {}

    with pytest.raises(ViewDefinitionError, match=r"@limit\('5/m'\) with parentheses"):
        bare(find)


def test_an_instance_of_a_view_is_not_registered() -> None:
    """The class is what a router makes instances of."""
    instance: Any = view_of(("throttle", "5/m"), ("get", handler))()

    with pytest.raises(RegistrationError, match="Give the class itself"):
        ThrottledRouter().add_view(instance)
