"""
Versions of an API: a view that is in both has one counter, whichever is called.

Serve it with ``uvicorn examples.versions:app``.
"""

from fastapi import FastAPI

from throttled_views import Limiter, ThrottledRouter, ThrottledView

limiter = Limiter("3/m")


class Items(ThrottledView):
    """The same in all versions, so that nobody has a second quota in the next one."""

    path = "/items"

    async def get(self) -> list[str]:
        """List the items."""
        return ["apple", "pear"]


class Orders(ThrottledView):
    """Orders as they were."""

    path = "/orders"

    async def get(self) -> list[str]:
        """List them by name."""
        return ["apple"]


class NewOrders(ThrottledView):
    """Orders as they are now: another view, which is counted by itself."""

    path = "/orders"

    async def get(self) -> dict[str, int]:
        """List them with their numbers."""
        return {"apple": 1}


v1 = ThrottledRouter(limiter, prefix="/v1")
v1.add_view(Items)
v1.add_view(Orders)

v2 = ThrottledRouter(limiter, prefix="/v2")
v2.add_view(Items)
v2.add_view(NewOrders)

app = FastAPI(title="throttled_views: versions")
app.include_router(v1)
app.include_router(v2)
