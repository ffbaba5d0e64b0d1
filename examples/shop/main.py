"""The application: its routers, and what they share."""

from fastapi import FastAPI

from . import books, orders
from .limits import make_limiter
from .settings import Settings


async def health() -> dict[str, str]:
    """Say that we are alive; on no router of ours, so nothing limits it."""
    return {"status": "up"}


def create_app(settings: Settings) -> FastAPI:
    """Make an application with counters of its own, unless they are in Redis."""
    limiter = make_limiter(settings)
    shop = FastAPI(title="throttled_views: shop")
    shop.state.settings = settings
    shop.include_router(books.make_router(limiter))
    shop.include_router(orders.make_router(limiter))
    shop.add_api_route("/health", health)
    return shop


app = create_app(Settings())
