"""Functions whose annotations are evaluated late, as text, in this module."""

from __future__ import annotations

from typing import Annotated

from fastapi import BackgroundTasks, Depends, Header, Request, Response
from pydantic import BaseModel


async def tenant(x_tenant: Annotated[str, Header()] = "nobody") -> str:
    """Name who asks."""
    return x_tenant


async def look(
    request: Request,
    response: Response,
    tasks: BackgroundTasks,
    who: Annotated[str, Depends(tenant)],
    page: int = 1,
) -> Page:
    """Have all that FastAPI injects, and return a model that is defined below."""
    tasks.add_task(str, "later")
    response.headers["X-Path"] = request.url.path
    return Page(number=page, owner=who)


async def write(page: Page, *, draft: bool = False) -> Page:
    """Read a model from the body."""
    return page if draft else Page(number=page.number, owner="published")


class Page(BaseModel):
    """A model, defined after the functions that speak of it."""

    number: int
    owner: str
