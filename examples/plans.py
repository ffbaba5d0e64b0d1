"""
Quotas by plan: authentication finds the user, and the user's plan says how much.

Serve it with ``uvicorn examples.plans:app``.
"""

from typing import Annotated

from fastapi import Depends, FastAPI, HTTPException, status
from fastapi.security import APIKeyHeader
from pydantic import BaseModel

from throttled_views import Limit, Quota, ThrottledView, client_ip


class User(BaseModel):
    """Who asks."""

    name: str
    plan: str


USERS = {
    "t-alice": User(name="alice", plan="free"),
    "t-bob": User(name="bob", plan="pro"),
}
PLANS = {"free": Quota.per_minute(2), "pro": Quota.per_minute(100, burst=20)}

token_header = APIKeyHeader(name="X-Token", auto_error=False)


async def current_user(token: Annotated[str | None, Depends(token_header)]) -> User:
    """Find the user whose token it is."""
    user = USERS.get(token or "")
    if user is None:
        raise HTTPException(status.HTTP_401_UNAUTHORIZED, "Unknown token")
    return user


CurrentUser = Annotated[User, Depends(current_user)]


async def by_user(user: CurrentUser) -> str:
    """Count each user, whatever the address."""
    return f"user {user.name}"


async def quota_of_plan(user: CurrentUser) -> Quota:
    """Ask for the quota with each request, so that a new plan holds at once."""
    return PLANS[user.plan]


class Reports(ThrottledView):
    """Limited by user; and by address, before anybody guesses tokens for free."""

    path = "/reports"
    throttle = (
        Limit("30/m", name="address", key_func=client_ip),
        Limit(quota_of_plan, name="plan", key_func=by_user),
    )

    async def get(self, user: CurrentUser) -> dict[str, str]:
        """Report to the user."""
        return {"user": user.name, "plan": user.plan}


app = FastAPI(title="throttled_views: plans")
app.include_router(Reports.as_router())
