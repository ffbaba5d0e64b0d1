"""Views that derive from views, and from other classes."""

import gc
import types
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Any, Protocol

import pytest
from fastapi import Query
from pydantic import BaseModel

from tests.apps_views import admitted, app_of, body, operation, view_of
from tests.asgi import statuses
from throttled_views import (
    Algorithm,
    Quota,
    RegistrationError,
    Throttle,
    ThrottledView,
    ThrottledViewMeta,
    ViewDefinitionError,
    everyone,
    exempt,
    limit,
    route,
)


class Blogs(ThrottledView):
    """Serves a fixed path before one that would capture it."""

    path = "/blogs"
    throttle: Throttle | None = "3/m"

    @route.get("/drafts")
    async def drafts(self) -> str:
        """Serve the drafts."""
        return "base drafts"

    @route.get("/{number}")
    async def find(self, number: int) -> str:
        """Serve one."""
        return f"{type(self).__name__} {number}"

    async def get(self) -> str:
        """Serve all."""
        return f"{type(self).__name__} all"


# --- handlers -------------------------------------------------------------------------


async def test_handlers_are_inherited() -> None:
    """A subclass serves what its base serves, as itself."""

    class Mine(Blogs):
        pass

    app = app_of(Mine)

    assert "Mine all" == await body(app, "GET /v/blogs")
    assert "Mine 3" == await body(app, "GET /v/blogs/3")
    assert ["drafts", "find", "get"] == list(Mine.throttled)


async def test_an_override_keeps_the_place_of_the_base() -> None:
    """What is overridden is still tried before what came after it in the base."""

    class Mine(Blogs):
        @route.post("")
        async def create(self) -> str:
            return "created"

        @route.get("/drafts")
        async def drafts(self) -> str:
            return "own drafts"

    assert ["drafts", "find", "get", "create"] == list(Mine.throttled)
    assert "own drafts" == await body(app_of(Mine), "GET /v/blogs/drafts")


async def test_an_override_may_move_a_route() -> None:
    """The routes of the override replace those of the base."""

    class Mine(Blogs):
        @route.get("/unfinished/all")
        async def drafts(self) -> str:
            return "own drafts"

    app = app_of(Mine)

    assert "own drafts" == await body(app, "GET /v/blogs/unfinished/all")
    assert [422] == await statuses(app, "GET /v/blogs/drafts")


async def test_an_override_can_call_the_base() -> None:
    """super() works as in any class, and one request is charged once."""

    class Mine(Blogs):
        async def get(self) -> str:
            return f"{await super().get()} of mine"

    app = app_of(Mine)

    assert "Mine all of mine" == await body(app, "GET /v/blogs")
    assert 3 == await admitted(app_of(Mine), "GET /v/blogs")


async def test_subclasses_answer_as_themselves() -> None:
    """A handler that two views inherit is an endpoint of its own in each."""

    class One(Blogs):
        path = "/one"

    class Two(Blogs):
        path = "/two"

    app = app_of(One, Two, Blogs)

    assert ["One all", "Two all", "Blogs all"] == [
        await body(app, f"GET /v/{path}") for path in ("one", "two", "blogs")
    ]


async def test_subclasses_have_counts_of_their_own() -> None:
    """What one view spends is not missing in its base, nor in its siblings."""

    class One(Blogs):
        path = "/one"

    class Two(Blogs):
        path = "/two"
        throttle = "1/m"

    app = app_of(One, Two, Blogs)

    assert [200, 200, 200, 429] == await statuses(app, *["GET /v/one"] * 4)
    assert [200, 429] == await statuses(app, *["GET /v/two"] * 2)
    assert [200, 200, 200, 429] == await statuses(app, *["GET /v/blogs"] * 4)


def test_a_declaration_of_a_subclass_leaves_the_base_alone() -> None:
    """Neither the limits nor the handlers of a base change with its subclasses."""

    class Mine(Blogs):
        throttle = "1/m"

        @exempt
        async def get(self) -> str:
            return ""

        async def post(self) -> str:
            return ""

    assert ["drafts", "find", "get"] == list(Blogs.throttled)
    assert {Quota.per_minute(3)} == {
        each.limits[0].quota for each in Blogs.throttled.values()
    }
    assert () == Mine.throttled["get"].limits


@pytest.mark.parametrize(
    "decorate", [exempt, limit("100/m")], ids=["exempt", "another limit"]
)
def test_a_decorated_handler_of_the_base_leaves_siblings_alone(
    decorate: Callable[[Any], Any],
) -> None:
    """What one subclass says of an inherited handler is not true of the next one."""

    class Base(ThrottledView):
        throttle = "1/m"

        async def get(self) -> None:
            pass

    class Mine(Base):
        pass

    with suppress(ViewDefinitionError):  # to refuse it would be an answer, too
        view_of(("get", decorate(Base.get)), bases=(Base,))

    class Next(Base):
        pass

    assert Mine.throttled["get"].limits == Next.throttled["get"].limits


def test_a_decorated_handler_of_a_mixin_leaves_others_alone() -> None:
    """A mixin that is no view is shared as well, and so is no place for marks."""

    class Mixin:
        async def get(self) -> None:
            pass

    with suppress(ViewDefinitionError):
        view_of(("get", exempt(Mixin.get)), bases=(Mixin, ThrottledView))
    view = view_of(("throttle", "1/m"), bases=(Mixin, ThrottledView))

    assert ["1/m"] == [str(each.quota) for each in view.throttled["get"].limits]


class Picked(ThrottledView):
    """Has a limited handler that others may pick."""

    throttle = "100/m"

    @limit("1/m")
    async def get(self) -> None:
        """Serve."""


class PickedMixin:
    """Has one too, and is no view."""

    @limit("1/m")
    async def get(self) -> None:
        """Serve."""


@pytest.mark.parametrize(
    "bases", [(Picked,), (PickedMixin, ThrottledView)], ids=["view", "mixin"]
)
def test_a_handler_that_is_picked_keeps_its_limit(bases: tuple[type, ...]) -> None:
    """`get = Base.get` says what is so anyway; whatever becomes of it, Base stays."""
    picked: Any = bases[0]
    with suppress(ViewDefinitionError):
        view_of(("throttle", "100/m"), ("get", picked.get), bases=bases)
    view = view_of(("throttle", "100/m"), bases=bases)

    assert ["1/m"] == [str(each.quota) for each in view.throttled["get"].limits]


def test_one_of_two_inherited_handlers_may_be_picked() -> None:
    """A view with two bases may say which of them it means, with its limit."""

    class Other(ThrottledView):
        @limit("2/m")
        async def get(self) -> None:
            pass

    view = view_of(("get", Other.get), bases=(Picked, Other))

    assert ["2/m"] == [str(each.quota) for each in view.throttled["get"].limits]


def defined_in_a_class() -> type:
    """Define a view by a class statement."""

    class View(ThrottledView):
        @limit("5/m")
        async def get(self) -> None:
            pass

    return View


def made_of_a_function() -> Any:  # noqa: ANN401
    """Make a view of a function that stands elsewhere."""

    async def get(self: object) -> None:
        pass

    return view_of(("get", limit("5/m")(get)))


def made_of_a_mixin() -> Any:  # noqa: ANN401
    """Make a view of a class that is no view."""

    class Mixin:
        @limit("5/m")
        async def get(self) -> None:
            pass

    return view_of(bases=(Mixin, ThrottledView))


@pytest.mark.parametrize(
    "make", [defined_in_a_class, made_of_a_function, made_of_a_mixin]
)
def test_a_view_that_nobody_keeps_is_forgotten(make: Callable[[], Any]) -> None:
    """Views may be made by the thousand; their handlers go with them."""
    gone = weakref.ref(make().get)
    gc.collect()

    assert gone() is None


async def test_a_route_is_registered_once() -> None:
    """However often a handler is inherited, it is one operation of the document."""

    class One(Blogs):
        pass

    class Two(Blogs):
        pass

    class Both(One, Two):
        pass

    paths = app_of(Both).openapi()["paths"]

    assert ["/v/blogs/drafts", "/v/blogs/{number}", "/v/blogs"] == list(paths)
    assert "Both_get_v_blogs_get" == paths["/v/blogs"]["get"]["operationId"]


async def test_a_diamond_follows_the_order_of_python() -> None:
    """Of two bases the first one's handler serves, and its super() is the second's."""

    class One(Blogs):
        async def get(self) -> str:
            return f"one, {await super().get()}"

    class Two(Blogs):
        async def get(self) -> str:
            return f"two, {await super().get()}"

    class Both(One, Two):
        pass

    class Reversed(Two, One):
        path = "/reversed"

    app = app_of(Both, Reversed)

    assert "one, two, Both all" == await body(app, "GET /v/blogs")
    assert "two, one, Reversed all" == await body(app, "GET /v/reversed")


async def test_a_plain_mixin_brings_handlers() -> None:
    """A class that is no view can hold handlers, which are limited where it is used."""

    class Listing:
        @limit("2/m")
        async def get(self, size: Annotated[int, Query()] = 1) -> int:
            return size

        @route.get("/first")
        async def first(self) -> str:
            return type(self).__name__

    class Items(Listing, ThrottledView):
        throttle = "5/m"

    # A checker wants the mixin first: a view's own verbs may stream, too.
    class Others(ThrottledView, Listing):  # type: ignore[misc]
        path = "/others"
        throttle = "6/m"

    app = app_of(Items)

    assert {"get": "2/m", "first": "5/m"} == {
        name: str(each.limits[0].quota) for name, each in Items.throttled.items()
    }
    assert {"get": "2/m", "first": "6/m"} == {
        name: str(each.limits[0].quota) for name, each in Others.throttled.items()
    }
    assert "Items" == await body(app, "GET /v/first")
    assert 2 == await admitted(app, "GET /v?size=2")


def test_declarations_are_inherited() -> None:
    """Each attribute that a base declares is as good as the view's own."""

    class Base(ThrottledView):
        path = "/base"
        tags = ["base"]
        throttle: Throttle | None = Quota.per_minute(7)
        key_func = everyone
        using = Algorithm.GCRA
        bucket = "base"

        async def get(self) -> None:
            pass

    class View(Base):
        pass

    class Mine(View):
        bucket = "mine"
        throttle = "8/m"

    [inherited], [own] = View.throttled["get"].limits, Mine.throttled["get"].limits

    assert View.throttled["get"].limits == Base.throttled["get"].limits
    assert (Quota.per_minute(8), "mine") == (own.quota, own.bucket)
    assert (everyone, Algorithm.GCRA) == (own.key_func, own.using)
    assert (Quota.per_minute(7), "base") == (inherited.quota, inherited.bucket)
    assert ["base"] == operation(app_of(Mine), "get", "/v/base")["tags"]


# --- that nothing gets around the metaclass -------------------------------------------


async def test_a_mixin_cannot_leave_the_checks_out() -> None:
    """A base whose __init_subclass__ forgets super() is checked, and limited, too."""

    class Careless:
        def __init_subclass__(cls, **kwargs: object) -> None:
            pass

    class Limited(Careless, ThrottledView):
        throttle = "2/m"

        async def get(self) -> None:
            pass

    def sync(self: object) -> None:
        pass

    assert 2 == await admitted(app_of(Limited))
    with pytest.raises(ViewDefinitionError, match="it is not async"):
        view_of(("get", sync), bases=(Careless, ThrottledView))


async def test_arguments_of_the_class_statement_are_for_bases() -> None:
    """What stands beside the bases goes to their __init_subclass__, as usual."""

    class Titled:
        title: str

        def __init_subclass__(cls, title: str = "", **kwargs: object) -> None:
            super().__init_subclass__(**kwargs)
            cls.title = title

    class View(Titled, ThrottledView, title="given"):
        throttle = "5/m"

        async def get(self) -> str:
            return self.title

    assert "given" == await body(app_of(View))


async def test_a_base_may_declare_for_its_subclasses() -> None:
    """What __init_subclass__ sets is there before the declaration is read."""

    class Titled(ThrottledView):
        throttle = "5/m"

        def __init_subclass__(cls, title: str = "", **kwargs: object) -> None:
            super().__init_subclass__(**kwargs)
            cls.path = f"/{title}"

    class View(Titled, title="books"):
        async def get(self) -> str:
            return "found"

    assert "found" == await body(app_of(View), "GET /v/books")


@pytest.mark.parametrize("name", ["name", "bases", "namespace"])
def test_arguments_of_the_class_statement_have_any_name(name: str) -> None:
    """None of the names of the metaclass's own parameters is taken."""

    class Named:
        given: dict[str, object]

        def __init_subclass__(cls, **kwargs: object) -> None:
            cls.given = kwargs

    view = types.new_class("View", (Named, ThrottledView), {name: "given"})

    assert {name: "given"} == view.__dict__["given"]


def test_an_unknown_argument_of_the_class_statement_is_refused() -> None:
    """A declaration beside the bases is an error: it would not be read."""
    make: Any = ThrottledViewMeta

    with pytest.raises(TypeError, match="takes no keyword arguments"):
        make("View", (ThrottledView,), {}, throttle="5/m")


# --- abstract views -------------------------------------------------------------------


class Abstract(ThrottledView):
    """Leaves two things to subclasses."""

    throttle = "5/m"

    @abstractmethod
    def name(self) -> str:
        """Name the view."""

    @abstractmethod
    async def get(self) -> str:
        """Serve."""


class Half(Abstract):
    """Implements one of them."""

    async def get(self) -> str:
        """Serve the name."""
        return self.name()


class Whole(Half):
    """Implements both."""

    def name(self) -> str:
        """Name the view."""
        return "whole"


@pytest.mark.parametrize(
    ("view", "missing"), [(Abstract, "get, name"), (Half, "name")], ids=["none", "half"]
)
def test_an_abstract_view_is_not_registered(
    view: type[ThrottledView], missing: str
) -> None:
    """It is refused with the names of what is missing; nobody could serve it."""
    with pytest.raises(RegistrationError) as caught:
        app_of(view)

    assert f"{__name__}.{view.__name__}" == caught.value.subject
    assert f"it is abstract: {missing} is not implemented" in str(caught.value)
    assert "Register a subclass that implements it" in str(caught.value)


async def test_a_view_that_implements_an_abstract_one_is_registered() -> None:
    """Abstract bases are a way to write views, and have their limits."""
    assert "whole" == await body(app_of(Whole))
    assert {"get"} == set(Abstract.throttled)


async def test_a_view_may_derive_from_abc() -> None:
    """Abstract base classes of Python have a metaclass that views go along with."""

    class Named(ABC):
        @abstractmethod
        def name(self) -> str: ...

    class Before(Named, ThrottledView):
        throttle = "5/m"

        async def get(self) -> str:
            return self.name()

    class After(ThrottledView, Named):
        throttle = "5/m"

        async def get(self) -> str:
            return self.name()

        def name(self) -> str:
            return "after"

    with pytest.raises(RegistrationError, match="it is abstract: name"):
        app_of(Before)
    assert "after" == await body(app_of(After))


# --- other metaclasses ----------------------------------------------------------------


class Named(Protocol):
    """Has a name."""

    def name(self) -> str:
        """Return the name."""
        ...


class Model(BaseModel):
    """Has a metaclass of its own."""


@pytest.mark.parametrize("base", [Named, Model], ids=["protocol", "model"])
def test_classes_of_other_metaclasses_conflict(base: type) -> None:
    """Python refuses to combine a view with them; nothing is half a view."""
    with pytest.raises(TypeError, match="metaclass conflict"):
        view_of(bases=(ThrottledView, base))


async def test_a_metaclass_of_both_resolves_the_conflict() -> None:
    """Derived from the metaclasses of both, one makes views that are something else."""

    class Meta(ThrottledViewMeta, type(Named)):  # type: ignore[misc]
        pass

    def sync(self: object) -> None:
        pass

    class View(ThrottledView, Named, metaclass=Meta):
        throttle = "2/m"

        async def get(self) -> str:
            return self.name()

        def name(self) -> str:
            return "both"

    assert "both" == await body(app_of(View))
    assert 2 == await admitted(app_of(View))
    with pytest.raises(ViewDefinitionError, match="it is not async"):
        view_of(("get", sync), bases=(View,))


async def test_a_protocol_needs_no_inheritance() -> None:
    """A view has the type of a protocol by having its methods."""

    class View(ThrottledView):
        throttle = "2/m"

        async def get(self) -> str:
            named: Named = self
            return named.name()

        def name(self) -> str:
            return "structural"

    assert "structural" == await body(app_of(View))
