"""A real browser: Chromium without a window, driven by the WebDriver protocol."""

import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.serving import serving

_CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
_FLAGS = (
    "--headless",
    "--no-sandbox",  # which cannot be had by root
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
_SECONDS = 60


class Browser:
    """
    One window.

    Args:
        session: URL of the driver's session.
    """

    def __init__(self, session: str) -> None:
        self._session = session

    def _post(self, command: str, **body: object) -> Any:  # noqa: ANN401 - it is JSON
        """See https://www.w3.org/TR/webdriver2/#endpoints."""
        answer = httpx.post(f"{self._session}/{command}", json=body, timeout=_SECONDS)
        assert answer.is_success, answer.text
        return answer.json()["value"]

    def visit(self, url: str) -> None:
        """Load a page."""
        self._post("url", url=url)

    def run(self, script: str, *arguments: object) -> Any:  # noqa: ANN401 - it is JSON
        """Run *script* on the page, and wait for what it returns."""
        return self._post("execute/sync", script=script, args=arguments)

    def quit(self) -> None:
        """End the browser."""
        httpx.delete(self._session, timeout=_SECONDS)


@contextmanager
def chromium(profile: Path) -> Generator[Browser]:
    """
    Start a browser with an empty *profile*; skip the test where there is none.

    Debian has it as ``chromium`` and ``chromium-driver``.
    """
    driver = shutil.which("chromedriver")
    program = next(filter(None, map(shutil.which, _CHROMIUM)), None)
    if driver is None or program is None:
        pytest.skip("Chromium or its driver, chromedriver, is not installed")
    flags = [*_FLAGS, f"--user-data-dir={profile}"]
    options = {"binary": program, "args": flags}
    wanted = {"browserName": "chrome", "goog:chromeOptions": options}
    with serving(driver) as server:
        started = httpx.post(
            f"{server.url}/session",
            json={"capabilities": {"alwaysMatch": wanted}},
            timeout=_SECONDS,
        )
        assert started.is_success, started.text
        session = started.json()["value"]["sessionId"]
        browser = Browser(f"{server.url}/session/{session}")
        try:
            yield browser
        finally:
            browser.quit()
