"""
API keys: a customer is counted by name, wherever it calls from.

Serve it with ``uvicorn examples.api_keys:app``.
"""

from fastapi import FastAPI, Request

from throttled_views import CurrentRateLimit, ThrottledView, client_ip

CUSTOMERS = {"k-alice": "alice", "k-bob": "bob"}


def customer(request: Request) -> str:
    """
    Count a customer by name and everybody else by address.

    A key that is not ours counts for nothing: whoever invents keys would
    otherwise get a fresh quota with each of them.
    """
    name = CUSTOMERS.get(request.headers.get("X-API-Key", ""))
    return f"customer {name}" if name else client_ip(request)


class Account(ThrottledView):
    """What a client may still do."""

    path = "/account"
    throttle = "5/m"
    key_func = customer

    async def get(self, rate_limit: CurrentRateLimit) -> dict[str, int]:
        """Say how many requests are left."""
        state = rate_limit.result.state
        return {"limit": state.limit, "remaining": state.remaining}


app = FastAPI(title="throttled_views: API keys")
app.include_router(Account.as_router())
