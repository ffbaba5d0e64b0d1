"""
Lists of strings with parameters: RFC 9651, as far as rate limits are told in it.

Only whole numbers are read. For more than that there are libraries, which whoever runs
tests need not have.
"""

from __future__ import annotations

import re

__all__ = ["numbers_of"]

_STRING = r'"(?:[ !#-\[\]-~]|\\["\\])*"'  # section 3.3.3
_KEY = r"[a-z*][a-z0-9_.*-]*"  # section 3.1.2
_VALUE = rf'{_STRING}|[^\s",;]+'
_TAIL = rf"(?:; *{_KEY}(?:=(?:{_VALUE}))?)*"
_LIST = re.compile(rf" *{_STRING}{_TAIL}(?:[ \t]*,[ \t]*{_STRING}{_TAIL})* *")
# In a list these find all items, and in an item all its parameters: strings are taken
# whole, so that nothing within one is mistaken for something else.
_ITEMS = re.compile(rf"(?P<name>{_STRING})(?P<parameters>{_TAIL})")
_PARAMETERS = re.compile(rf"; *(?P<key>{_KEY})(?:=(?P<value>{_VALUE}))?")
_NUMBER = re.compile("[0-9]{1,15}")  # section 3.3.1


def numbers_of(text: str) -> dict[str, dict[str, int]] | None:
    """
    Return the numbers that *text* has for each string of a list.

    These are its parameters that are whole numbers, 0 or more. Strings are as they are
    written, in quotes. None if *text* is no list of strings.
    """
    if not _LIST.fullmatch(text):
        return None
    return {
        found["name"]: _numbers(found["parameters"]) for found in _ITEMS.finditer(text)
    }


def _numbers(parameters: str) -> dict[str, int]:
    return {
        found["key"]: int(found["value"])
        for found in _PARAMETERS.finditer(parameters)
        if _NUMBER.fullmatch(found["value"] or "")
    }
