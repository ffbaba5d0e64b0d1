"""
Dependencies in ``__init__``: what all handlers need is prepared in one place.

Serve it with ``uvicorn examples.constructor:app``.
"""

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import Depends, FastAPI, Header

from throttled_views import ThrottledView, route

INVOICES = {"acme": [120, 80], "umbrella": [7]}


class Session:
    """A session of a database, which has to be closed."""

    is_open = True

    async def invoices(self, tenant: str) -> list[int]:
        """Return the amounts of a tenant's invoices."""
        return INVOICES.get(tenant, [])


async def get_session() -> AsyncIterator[Session]:
    """Open a session for a request; one that is refused does not get here."""
    session = Session()
    yield session
    session.is_open = False


class Invoices(ThrottledView):
    """The invoices of the tenant that asks."""

    path = "/invoices"
    throttle = "5/m"

    def __init__(
        self,
        session: Annotated[Session, Depends(get_session)],
        x_tenant: Annotated[str, Header()],
    ) -> None:
        self.session = session
        self.tenant = x_tenant.lower()

    async def get(self) -> list[int]:
        """List the amounts."""
        return await self.session.invoices(self.tenant)

    @route.get("/total")
    async def total(self) -> int:
        """Add them up."""
        return sum(await self.session.invoices(self.tenant))


app = FastAPI(title="throttled_views: constructor")
app.include_router(Invoices.as_router())
