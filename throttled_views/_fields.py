"""
Header fields that tell which way a request came: what they list, the last hop first.

Whoever forwards a request adds itself at the right; what stands to the left of that was
written by others, at the far end by the client. All is therefore read from the right,
so that nothing a client writes changes how the entries after its own are read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TypeGuard

__all__ = ["FORWARDED", "X_FORWARDED_FOR", "is_field_name", "nodes_of"]

FORWARDED = "Forwarded"
X_FORWARDED_FOR = "X-Forwarded-For"

_NAME = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"  # RFC 9110, section 5.6.2: a token
_FIELD_NAME = re.compile(_NAME)
# RFC 7239, section 4. Values that ought to be quoted, with a port say, often are not.
_PAIR = re.compile(
    rf'[ \t]*(?P<name>{_NAME})=(?:"(?P<quoted>(?:[^"\\]|\\.)*+)"|(?P<bare>[^\s",;]+))'
    r"[ \t]*(?:;|$)"
)
_ESCAPE = re.compile(r"\\(.)")
_MOST_HOPS = 32


def is_field_name(name: object) -> TypeGuard[str]:
    """Tell whether *name* can be the name of a header field."""
    return isinstance(name, str) and _FIELD_NAME.fullmatch(name) is not None


def nodes_of(field: str, lines: Sequence[str]) -> Iterator[str]:
    """
    Return the nodes that *lines* of a field list, the last first.

    Several lines are one list (RFC 9110, section 5.3). No more hops are read than there
    can be.

    Args:
        field: ``X-Forwarded-For``, or ``Forwarded`` (RFC 7239); of that, an element
            without a node, or one that is not well-formed, gives empty text.
        lines: The lines of the field, in order.
    """
    read = _of_forwarded if field == FORWARDED else _of_x_forwarded_for
    nodes = (node for line in reversed(lines) for node in read(line))
    return islice(nodes, _MOST_HOPS)


def _of_x_forwarded_for(line: str) -> Iterator[str]:
    return reversed(line.rsplit(",", _MOST_HOPS))


def _of_forwarded(line: str) -> Iterator[str]:
    """Yield the nodes of what stands between commas that are in no quotes."""
    end, is_quoted = len(line), False
    for at in range(len(line) - 1, -1, -1):
        if line[at] == '"' and not _is_escaped(line, at):
            is_quoted = not is_quoted
        elif line[at] == "," and not is_quoted:
            yield _node(line[at + 1 : end])
            end = at
    yield _node(line[:end])


def _is_escaped(line: str, at: int) -> bool:
    first = at
    while first and line[first - 1] == "\\":
        first -= 1
    return (at - first) % 2 == 1


def _node(element: str) -> str:
    """Return the one value of ``for`` in *element*, or empty text."""
    nodes: list[str] = []
    at = 0
    while at < len(element):
        pair = _PAIR.match(element, at)
        if pair is None:
            return ""
        at = pair.end()
        if pair["name"].lower() == "for":
            nodes.append(pair["bare"] or _ESCAPE.sub(r"\1", pair["quoted"]))
    return nodes[0] if len(nodes) == 1 else ""
