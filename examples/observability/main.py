"""The application: limits of several kinds, and the metrics of all of them."""

from fastapi import FastAPI, HTTPException, Response, status
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from pydantic import BaseModel

from throttled_views import (
    EXEMPT,
    Limit,
    Limiter,
    MemoryStore,
    ThrottledRouter,
    ThrottledView,
    everyone,
    limit,
)
from throttled_views.contrib.prometheus import PrometheusHook

PASSWORDS = {"alice": "wonderland"}


class Credentials(BaseModel):
    """Who wants to log in."""

    user: str
    password: str


def is_success(status_code: int) -> bool:
    """Tell whether a login succeeded."""
    return status_code < status.HTTP_400_BAD_REQUEST


store = MemoryStore(max_keys=100_000)
registry = CollectorRegistry()
limiter = Limiter(store=store, hooks=[PrometheusHook(registry=registry, store=store)])
router = ThrottledRouter(limiter)


@router.view
class Items(ThrottledView):
    """Held to one limit, while another is tried out before it is enforced."""

    path = "/items"
    throttle = (
        Limit("20/m", name="now"),
        Limit("10/m", name="next", shadow=True),
    )

    async def get(self) -> list[str]:
        """List what there is."""
        return ["apple", "pear"]


@router.view
class Reports(ThrottledView):
    """Costly: two at once, and a third waits for its turn for up to two seconds."""

    path = "/reports"
    throttle = Limit("1/s burst 2", name="turns", key_func=everyone, max_delay=2.0)

    async def get(self) -> dict[str, int]:
        """Report."""
        return {"visitors": 42}


@router.view
class Login(ThrottledView):
    """Only what fails is counted: five wrong passwords in ten minutes."""

    path = "/login"

    @limit(Limit("5/10m", name="failures", refund_when=is_success))
    async def post(self, credentials: Credentials) -> str:
        """Log somebody in."""
        if PASSWORDS.get(credentials.user) != credentials.password:
            raise HTTPException(status.HTTP_401_UNAUTHORIZED, "Wrong name or password")
        return f"Welcome, {credentials.user}"


@router.view
class Metrics(ThrottledView):
    """Scraped by Prometheus. Let nobody else reach it where this is for real."""

    path = "/metrics"
    throttle = EXEMPT

    async def get(self) -> Response:
        """Export all metrics."""
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)


app = FastAPI(title="throttled_views: observability")
app.include_router(router)
