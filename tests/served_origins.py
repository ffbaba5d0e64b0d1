"""An application that pages of other origins talk to, for a real server."""

from collections.abc import Sequence

from fastapi import APIRouter, FastAPI
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import HTMLResponse

from throttled_views import (
    EXPOSED_HEADERS,
    IETFHeaders,
    Limiter,
    RateLimitMiddleware,
    ThrottledView,
)


class View(ThrottledView):
    """A view, limited early."""

    path = "/view"
    throttle = "1/h"

    async def get(self) -> str:
        """Say hello."""
        return "hello"


limiter = Limiter()
functions = APIRouter()


@functions.get("/function")
@limiter.limit("1/h")
async def hello() -> str:
    """Say hello; limited right before the function."""
    return "hello"


@functions.get("/page")
async def page() -> HTMLResponse:
    """Be a page."""
    return HTMLResponse("<title>page</title>")


def application(
    limiter: Limiter,
    throttle: str | None = None,
    exposed: Sequence[str] = EXPOSED_HEADERS,
) -> FastAPI:
    """Return an application of all of them; *throttle* limits it as a whole."""
    app = FastAPI()
    app.include_router(View.as_router(limiter))
    app.include_router(functions)
    app.add_middleware(RateLimitMiddleware, limiter=limiter, throttle=throttle)
    app.add_middleware(
        CORSMiddleware,
        allow_origins=["*"],
        allow_headers=["X-API-Key"],
        expose_headers=exposed,
    )
    return app


app = FastAPI()
app.mount("/plain", application(Limiter()))
app.mount("/whole", application(Limiter(), "1/h"))
app.mount("/asking", application(Limiter(), "2/h"))
app.mount("/ietf", application(Limiter(headers=IETFHeaders())))
app.mount("/hidden", application(Limiter(), exposed=()))
