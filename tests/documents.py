"""Runs the Python code of a Markdown page, from top to bottom, in one module."""

import logging
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

ROOT = Path(__file__).parents[1]

_BLOCK = re.compile(r"^```python\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(
    r'^```\w+ title="(?P<title>[^"]+)"\n(?P<code>.*?)^```$', re.MULTILINE | re.DOTALL
)


class Block(NamedTuple):
    """Code of a page, and the line of the page on which it starts."""

    code: str
    line: int


def blocks(page: Path) -> list[Block]:
    """List the Python blocks of *page* in order."""
    text = page.read_text("utf-8")
    return [
        Block(found["code"], text.count("\n", 0, found.start("code")) + 1)
        for found in _BLOCK.finditer(text)
    ]


def files(page: Path) -> dict[str, str]:
    """Return the files that *page* shows, by their names: blocks with a title."""
    return {
        found["title"]: found["code"]
        for found in _FILE.finditer(page.read_text("utf-8"))
    }


def run(page: Path, *, first: int | None = None) -> ModuleType:
    """
    Run the blocks of *page*, or only the *first* few, as one module.

    The module is importable while its code runs and afterwards, because annotations
    are looked up in it.
    """
    name = "page_" + re.sub(r"\W", "_", str(page.relative_to(ROOT).with_suffix("")))
    module = ModuleType(name if first is None else f"{name}_first_{first}")
    sys.modules[module.__name__] = module
    logger = logging.getLogger("throttled_views")
    level = logger.level
    for block in blocks(page)[:first]:
        padded = "\n" * (block.line - 1) + block.code
        code = compile(padded, str(page), "exec", dont_inherit=True)
        # In a thread: `asyncio.run` of a page takes the event loop of its thread away.
        with ThreadPoolExecutor(max_workers=1) as thread:
            thread.submit(exec, code, vars(module)).result()
    logger.setLevel(level)  # which a page may set
    return module
