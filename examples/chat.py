"""
A WebSocket: the view limits connections, and each message is checked by hand.

Serve it with ``uvicorn examples.chat:app``; uvicorn needs the package ``websockets``.
"""

from fastapi import FastAPI, WebSocket

from throttled_views import Limiter, ThrottledView, client_ip, route

limiter = Limiter()
messages = limiter.throttled("5/10s", bucket="chat messages")


class Chat(ThrottledView):
    """Connects a client twice a minute, and hears five messages in ten seconds."""

    path = "/chat"
    throttle = "2/m"

    @route.websocket("")
    async def talk(self, websocket: WebSocket) -> None:
        """Answer each message; one too many is told so, and not acted upon."""
        await websocket.accept()
        async for text in websocket.iter_text():
            result = await messages.limit(client_ip(websocket))
            answer = "Slow down" if result.limited else f"You said {text}"
            await websocket.send_text(answer)


app = FastAPI(title="throttled_views: chat")
app.include_router(Chat.as_router(limiter))
