"""The shop of the tutorial counts in Redis, by client, in all its processes."""

import sys
from pathlib import Path

import httpx

from tests.documents import ROOT, files
from tests.redis.servers import Server, ask_list
from tests.serving import serving

PAGE = ROOT / "docs" / "tutorials" / "deploy-it.md"


def test_the_deployed_shop_is_right(
    server: Server, redis_url: str, tmp_path: Path
) -> None:
    """Two workers share counts, of the clients that a proxy forwards for."""
    (tmp_path / "shop.py").write_text(files(PAGE)["shop.py"], "utf-8")
    settings = [f"REDIS_URL={redis_url}", "TRUSTED_PROXIES=127.0.0.1"]
    uvicorn = [sys.executable, "-m", "uvicorn", "shop:app", f"--app-dir={tmp_path}"]
    with serving("env", *settings, *uvicorn, "--workers=2") as served:

        def ask(forwarded: str) -> int:
            # A connection each, so that both processes answer.
            fields = {"X-Forwarded-For": forwarded}
            return httpx.get(f"{served.url}/books", headers=fields).status_code

        alice = [ask("198.51.100.1") for _ in range(5)]
        forged = ask("192.0.2.9, 198.51.100.1")
        bob = ask("198.51.100.2")

    assert ([200, 200, 200, 429, 429], 429, 200) == (alice, forged, bob)
    assert [
        "throttled_views|GET|shop.Books.get|{198.51.100.1}|1",
        "throttled_views|GET|shop.Books.get|{198.51.100.2}|1",
    ] == sorted(map(str, ask_list(server.port, "KEYS", "*")))
