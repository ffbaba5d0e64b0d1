"""Paths that stand for all that a template matches, and what takes all of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any
from uuid import UUID

from starlette.convertors import (
    Convertor,
    FloatConvertor,
    IntegerConvertor,
    PathConvertor,
    StringConvertor,
    UUIDConvertor,
)

__all__ = ["examples_of", "takes_all"]

# For private use, so that no path of a user's has it.
_TEXT = "\ue000"
# What takes these takes all that a parameter may be: no less of it matches them.
_EXAMPLES: dict[type[Any], tuple[str, ...]] = {
    StringConvertor: (_TEXT,),
    PathConvertor: ("", _TEXT, f"{_TEXT}/{_TEXT}"),
    IntegerConvertor: ("0",),
    FloatConvertor: ("0", "0.5"),
    UUIDConvertor: (str(UUID(int=0)),),
}


def examples_of(
    template: str, convertors: Mapping[str, Convertor[Any]]
) -> Iterator[str]:
    """
    Yield paths that stand for all that *template* matches; none if that is not known.

    What matches all of them leaves nothing for the template.
    """
    examples = [_EXAMPLES.get(type(each), ()) for each in convertors.values()]
    for values in product(*examples):
        path = template
        for name, value in zip(convertors, values, strict=True):
            path = path.replace(f"{{{name}}}", value)
        yield path


def takes_all(pattern: re.Pattern[str], paths: Sequence[str]) -> bool:
    """
    Tell whether *pattern* takes all that *paths* stand for, and leaves none of it.

    Not if there are none: what they would stand for is not known then.
    """
    return bool(paths) and all(map(pattern.match, paths))
