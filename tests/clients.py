"""HTTP clients for applications in this process."""

import itertools
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import httpx
from fastapi import FastAPI

_addresses = (f"198.51.100.{last}" for last in itertools.cycle(range(1, 255)))


@asynccontextmanager
async def client_of(
    app: FastAPI, address: str | None = None
) -> AsyncGenerator[httpx.AsyncClient]:
    """Connect to *app*, by default from an address that nobody used before."""
    peer = (address or next(_addresses), 50_000)
    transport = httpx.ASGITransport(app=app, client=peer)
    async with httpx.AsyncClient(
        transport=transport, base_url="http://example.test"
    ) as client:
        yield client
