"""An application with sockets, for a real server."""

from fastapi import FastAPI, WebSocket
from starlette.types import ASGIApp, Receive, Scope, Send

from throttled_views import (
    Limiter,
    RateLimitMiddleware,
    ThrottledRouter,
    ThrottledView,
    route,
)

router = ThrottledRouter(Limiter("2/h"))


@router.view
class Chat(ThrottledView):
    """A view with a socket."""

    path = "/view"
    throttle = "2/h"

    @route.websocket("")
    async def talk(self, websocket: WebSocket) -> None:
        """Accept, and be done."""
        await accept(websocket)


async def accept(websocket: WebSocket) -> None:
    """Accept, and be done."""
    await websocket.accept()
    await websocket.close()


router.add_api_websocket_route("/router", accept)


inner = FastAPI()
inner.add_api_websocket_route("/socket", accept)
inner.add_middleware(RateLimitMiddleware, throttle="2/h")

app = FastAPI()
app.include_router(router)
app.mount("/app", inner)


def silent(app: ASGIApp) -> ASGIApp:
    """Return *app*, served as by a server that cannot refuse with a response."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, "extensions": {}}, receive, send)

    return serve


app_without_responses = silent(app)
