"""Applications for the tests of the command line, which finds them by their names."""

from types import SimpleNamespace
from typing import Annotated

from fastapi import Depends, FastAPI, Header, Request, WebSocket
from fastapi.staticfiles import StaticFiles

from tests.asgi import Relay
from throttled_views import (
    Algorithm,
    Limit,
    Limiter,
    MemoryStore,
    Quota,
    RateLimitMiddleware,
    Store,
    ThrottledRouter,
    ThrottledView,
    by_template,
    client_ip,
    everyone,
    exempt,
    first_of,
    header_key,
    limit,
    path_key,
    route,
)

stores: dict[str, Store] = {"relay": Relay(), "memory": MemoryStore()}
"""What `create_app` and `in_memory` count in; tests put others there."""


async def by_user(user: Annotated[str, Header()]) -> str:
    """Name a user, late."""
    return f"user {user}"


async def quota_of_plan(request: Request) -> Quota:
    """Choose a quota."""
    return Quota.per_minute(5)


async def cost_of_body(request: Request) -> int:
    """Tell a cost."""
    return 2


def by_query(request: Request) -> str:
    """Name a client by what may be missing."""
    return request.query_params["name"]


def by_name(request: Request) -> str | None:
    """Name a client, if it says how it is called."""
    return request.query_params.get("name")


class Items(ThrottledView):
    """A view with handlers of all kinds."""

    path = "/items"
    throttle = Limit("5/m", name="reads")

    async def get(self) -> str:
        """Have the limit of the class."""
        return ""

    @limit(
        Limit("3/m", name="writes", key_func=header_key("X-API-Key", otherwise=None)),
        Limit("100/h", name="all", key_func=everyone, using=Algorithm.SLIDING_LOG),
    )
    async def post(self) -> str:
        """Have two limits, of keys that need no address."""
        return ""

    @limit(Limit("9/h", key_func=header_key("X-API-Key")))
    async def put(self) -> str:
        """Ask for an address where a field is missing."""
        return ""

    @limit(Limit(quota_of_plan, name="plan", cost=cost_of_body, bucket="plans"))
    async def patch(self) -> str:
        """Have a quota of its own at each request."""
        return ""

    @limit(Limit("1/m", name="turns", max_delay=300.0))
    async def delete(self) -> str:
        """Have turns."""
        return ""

    @limit(Limit("9/h", key_func=by_user), Limit("3/h", shadow=True))
    @route.get("/mine")
    async def mine(self) -> str:
        """Have a key that FastAPI solves."""
        return ""

    @limit(Limit("9/h", key_func=by_query))
    @route.get("/named")
    async def named(self) -> str:
        """Have a key that may fail."""
        return ""

    @limit(Limit("9/h", key_func=path_key("tenant")))
    @route.get("/of/{tenant}")
    async def of_tenant(self, tenant: str) -> str:
        """Have a key in the path."""
        return tenant

    @limit(Limit("9/h", key_func=first_of(by_name, everyone)))
    @route.get("/chosen")
    async def chosen(self) -> str:
        """Have a key of one of two functions."""
        return ""

    @limit(Limit(quota_of_plan, cost=3))
    @route.get("/dear")
    async def dear(self) -> str:
        """Cost more than some quotas have."""
        return ""

    @exempt
    @route.get("/free")
    async def free(self) -> str:
        """Have no limit."""
        return ""

    @route.websocket("/socket")
    async def socket(self, websocket: WebSocket) -> None:
        """Serve sockets."""
        await websocket.accept()
        await websocket.close()


class Notes(ThrottledView):
    """A view that is included twice."""

    path = "/notes"
    throttle = "5/m"

    async def get(self) -> str:
        """Count for a template, where a limiter does."""
        return ""


async def search() -> str:
    """Be limited by a dependency."""
    return ""


def _app(store: Store) -> FastAPI:
    limiter = Limiter(store=store)
    app = FastAPI(openapi_url=None)
    app.include_router(Items.as_router(limiter), prefix="/v1")
    placed = Limiter(store=store, route_key=by_template)
    for prefix in ("/a", "/b"):
        app.include_router(Notes.as_router(placed), prefix=prefix)
    limited = Depends(limiter.dependency("7/m", key_func=client_ip))
    app.get("/search", dependencies=[limited])(search)
    app.add_middleware(RateLimitMiddleware, limiter=limiter, throttle="1000/m")
    return app


def create_app() -> FastAPI:
    """Make an application whose store is not ours."""
    return _app(stores["relay"])


def in_memory() -> FastAPI:
    """Make an application that counts in its process."""
    return _app(stores["memory"])


def needing(_setting: str) -> FastAPI:
    """Need what the command line does not give."""
    return in_memory()


_fine = ThrottledRouter(Limiter("9/m", enabled=False))
_fine.add_api_route("/", search)
fine = FastAPI(openapi_url=None)
"""An application of which all is limited, if that were switched on."""
fine.include_router(_fine)

forgetful = FastAPI(openapi_url=None)
"""An application that limits nothing."""
forgetful.add_api_route("/", search)

more_forgetful = FastAPI(openapi_url=None)
"""An application that cannot be looked into everywhere."""
more_forgetful.add_api_route("/", search)
more_forgetful.mount("/static", StaticFiles(directory="."))


async def misplaced() -> str:
    """Be limited above the route, which limits nothing."""
    return ""


misplacing = FastAPI(openapi_url=None)
"""An application with a mistake."""
Limiter().limit("5/m")(misplacing.get("/misplaced")(misplaced))

inner = SimpleNamespace(app=fine)
"""Something that has an application."""
