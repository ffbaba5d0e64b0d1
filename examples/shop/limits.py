"""What is limited, by whom it is counted, and where."""

from fastapi import Request

from throttled_views import ClientIP, Limit, Limiter, MemoryStore, Quota, Store
from throttled_views.stores.redis import RedisStore

from .auth import CurrentCustomer
from .settings import CurrentSettings, Settings, get_settings


async def quota_of_address(request: Request) -> Quota:
    """Give each address what the environment says."""
    settings = await get_settings(request)
    return settings.address_quota


async def by_customer(customer: CurrentCustomer) -> str:
    """Count each customer, whatever the address."""
    return f"customer {customer.name}"


async def quota_of_plan(customer: CurrentCustomer, settings: CurrentSettings) -> Quota:
    """Give each customer what was paid for."""
    return settings.pro_quota if customer.plan == "pro" else settings.free_quota


# Decided before authentication, so that guessing tokens is not free.
ADDRESS = Limit(quota_of_address, name="address", bucket="address")

# Decided after it. A bucket is one counter for all that a customer does.
PLAN = Limit(quota_of_plan, name="plan", bucket="plan", key_func=by_customer)


def make_limiter(settings: Settings) -> Limiter:
    """Make the limiter that all routers of an application share."""
    return Limiter(
        settings.browsing_quota,
        store=make_store(settings),
        key_func=ClientIP(trusted_proxies=settings.trusted_proxies),
    )


def make_store(settings: Settings) -> Store:
    """Count in Redis if there is one, and else in the memory of this process."""
    return RedisStore(settings.redis_url) if settings.redis_url else MemoryStore()
