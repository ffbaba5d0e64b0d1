"""
Behind a proxy: clients are told apart by the address that the proxy forwards for.

Serve it behind a proxy in one of these networks, and let nobody else rewrite the
address: ``uvicorn examples.proxy:app --no-proxy-headers``.
"""

from fastapi import FastAPI

from throttled_views import ClientIP, Limiter, ThrottledRouter, ThrottledView

# Yours, as the application sees them. What anybody else forwards is not believed.
PROXIES = ("10.0.0.0/8", "127.0.0.1")

limiter = Limiter("3/m", key_func=ClientIP(trusted_proxies=PROXIES))
router = ThrottledRouter(limiter)


@router.view
class Items(ThrottledView):
    """Limited by client, and not by proxy."""

    path = "/items"

    async def get(self) -> list[str]:
        """List the items."""
        return ["apple", "pear"]


app = FastAPI(title="throttled_views: proxy")
app.include_router(router)
