"""The shop of the examples, as several processes with one Redis serve it."""

import pytest
from fastapi.testclient import TestClient

from examples.shop.main import create_app
from examples.shop.settings import Settings

ALICE = {"Authorization": "Bearer t-alice"}


def test_shops_of_one_redis_share_what_they_count(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A customer has one quota, whichever of them is asked."""
    monkeypatch.setenv("REDIS_URL", redis_url)
    monkeypatch.setenv("FREE_QUOTA", "3/m")
    statuses: list[int] = []
    for _ in range(2):
        with TestClient(create_app(Settings())) as client:
            answers = [client.get("/account", headers=ALICE) for _ in range(2)]
        statuses += [answer.status_code for answer in answers]

    assert [200, 200, 200, 429] == statuses
