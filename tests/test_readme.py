"""The README does what it says."""

import re
import tomllib
from types import ModuleType

import pytest

from tests.clients import client_of
from tests.documents import ROOT, blocks, run

README = ROOT / "README.md"
COMMANDS = (
    'pip install -e ".[demo]" && python examples/quickstart.py',
    'pip install -e ".[dev]" && pytest',
)


@pytest.fixture(name="first", scope="module")
def first_fixture() -> ModuleType:
    """Run the first example alone, as somebody who copies it would."""
    return run(README, first=1)


async def test_first_example_admits_its_quota_and_refuses_the_next(
    first: ModuleType,
) -> None:
    """The first example answers five posts in a minute and refuses the sixth."""
    async with client_of(first.app) as client:
        answers = [
            await client.post("/items", params={"name": "fig"}) for _ in range(6)
        ]

    assert [200] * 5 + [429] == [answer.status_code for answer in answers]


async def test_first_example_limits_its_handlers_apart(first: ModuleType) -> None:
    """The first example lists items in bursts of twenty, whatever was posted."""
    async with client_of(first.app) as client:
        await client.post("/items", params={"name": "fig"})
        answers = [await client.get("/items") for _ in range(21)]

    assert [200] * 20 + [429] == [answer.status_code for answer in answers]


async def test_a_refusal_looks_as_described(first: ModuleType) -> None:
    """A refusal has the status, the body and the headers that the README lists."""
    async with client_of(first.app) as client:
        for _ in range(5):
            await client.post("/items", params={"name": "fig"})
        refusal = await client.post("/items", params={"name": "fig"})

    assert {"detail": "Rate limit exceeded"} == refusal.json()
    assert ("5", "0", "60", "12") == (
        refusal.headers["RateLimit-Limit"],
        refusal.headers["RateLimit-Remaining"],
        refusal.headers["RateLimit-Reset"],
        refusal.headers["Retry-After"],
    )


def test_first_example_is_short() -> None:
    """The first example has twelve to fifteen lines of code."""
    code = blocks(README)[0].code

    assert 12 <= len([line for line in code.splitlines() if line]) <= 15


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_stand_on_lines_of_their_own(command: str) -> None:
    """Each command can be copied as one line."""
    assert command in README.read_text("utf-8").splitlines()


def test_commands_name_extras_that_exist() -> None:
    """The extras in the README's commands are declared."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]

    assert {"demo", "dev", "redis"} <= set(project["optional-dependencies"])


def test_links_lead_to_what_there_is() -> None:
    """Each page and each example that the README links to exists."""
    links = re.findall(r"\]\(((?:docs|examples)/\S+)\)", README.read_text("utf-8"))

    assert links
    assert [] == [link for link in links if not (ROOT / link).exists()]
