"""Who is asking."""

from typing import Annotated, Literal

from fastapi import Depends, HTTPException, status
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel


class Customer(BaseModel):
    """A customer, and what was paid for."""

    name: str
    plan: Literal["free", "pro"]


# A database in a real shop.
TOKENS = {
    "t-alice": Customer(name="alice", plan="free"),
    "t-bob": Customer(name="bob", plan="pro"),
}

bearer = HTTPBearer(auto_error=False)


async def current_customer(
    credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)],
) -> Customer:
    """Find the customer whose token it is."""
    customer = TOKENS.get(credentials.credentials) if credentials else None
    if customer is None:
        raise HTTPException(
            status.HTTP_401_UNAUTHORIZED,
            "Unknown token",
            headers={"WWW-Authenticate": "Bearer"},
        )
    return customer


CurrentCustomer = Annotated[Customer, Depends(current_customer)]
