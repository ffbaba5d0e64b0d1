"""
Limits on plain functions of an ordinary FastAPI application.

Serve it with ``uvicorn examples.functions:app``.
"""

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import Depends, FastAPI, Query
from fastapi.responses import StreamingResponse

from throttled_views import Limiter, everyone

limiter = Limiter()
app = FastAPI(title="throttled_views: functions")


@app.get("/search")
@limiter.limit("10/m")
async def search(q: Annotated[str, Query(min_length=1)]) -> dict[str, str]:
    """Search; ten times a minute for each client address."""
    return {"found": q}


@app.get("/export")
@limiter.limit("2/m", key_func=everyone)
async def export() -> StreamingResponse:
    """Stream an export; twice a minute for all clients together."""

    async def rows() -> AsyncIterator[str]:
        for number in range(3):
            yield f"row {number}\n"

    return StreamingResponse(rows(), media_type="text/plain")


@app.get("/report", dependencies=[Depends(limiter.dependency("3/m"))])
def report() -> dict[str, int]:
    """Report; a synchronous function cannot be decorated, but it can depend."""
    return {"visitors": 42}
