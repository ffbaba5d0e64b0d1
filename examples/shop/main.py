"""The application: its routers, and what they share."""

from fastapi import FastAPI

from throttled_views import EXEMPT, ThrottledView

from . import books, orders
from .limits import make_limiter
from .settings import Settings


class Health(ThrottledView):
    """Asked by a load balancer, which must never be refused."""

    path = "/health"
    throttle = EXEMPT

    async def get(self) -> dict[str, str]:
        """Say that we are alive."""
        return {"status": "up"}


def create_app(settings: Settings) -> FastAPI:
    """Make an application with counters of its own, unless they are in Redis."""
    limiter = make_limiter(settings)
    shop = FastAPI(title="throttled_views: shop")
    shop.state.settings = settings
    shop.include_router(books.make_router(limiter))
    shop.include_router(orders.make_router(limiter))
    shop.include_router(Health.as_router(limiter))
    return shop


app = create_app(Settings())
