"""What the environment decides: quotas, proxies, and where requests are counted."""

from typing import Annotated

from fastapi import Depends
from pydantic_settings import BaseSettings
from starlette.requests import HTTPConnection

from throttled_views import Quota


class Settings(BaseSettings):
    """Read from variables of the same names, as in ``FREE_QUOTA=20/m``."""

    browsing_quota: Quota = Quota.per_second(5, burst=20)
    address_quota: Quota = Quota.per_minute(60)
    free_quota: Quota = Quota.per_minute(10)
    pro_quota: Quota = Quota.per_minute(300, burst=50)

    redis_url: str | None = None
    trusted_proxies: list[str] = []


async def get_settings(connection: HTTPConnection) -> Settings:
    """Give the settings of the application that serves the request."""
    settings: Settings = connection.app.state.settings
    return settings


CurrentSettings = Annotated[Settings, Depends(get_settings)]
