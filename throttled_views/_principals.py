"""Principals, who ask: how they stand in keys."""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from urllib.parse import quote

from throttled_views._early import called
from throttled_views.errors import InvalidKeyError

__all__ = [
    "LONGEST_PRINCIPAL",
    "checked_principal",
    "digest",
    "encoded",
    "encoded_principal",
]

LONGEST_PRINCIPAL = 64  # bytes of UTF-8
_DIGEST_BYTES = 16  # 128 bits
_DIGEST_MARK = "#"  # never left as it is by percent-encoding, so no text imitates it


def encoded(text: str) -> str:
    """Return *text* percent-encoded as UTF-8, lone surrogates included."""
    return quote(text, safe="", errors="surrogatepass")


def encoded_principal(principal: str) -> str:
    """Return *principal* as it stands in keys."""
    if len(principal) > LONGEST_PRINCIPAL:  # not to be held by a cache
        return _encoded_or_digested(principal)
    return _encoded_short(principal)


def _encoded_or_digested(principal: str) -> str:
    raw = principal.encode("utf-8", "surrogatepass")
    if len(raw) > LONGEST_PRINCIPAL:
        return _DIGEST_MARK + digest(raw)
    return encoded(principal)


def digest(raw: bytes) -> str:
    """Return a digest without a key, so that it is the same in every process."""
    return blake2b(raw, digest_size=_DIGEST_BYTES).hexdigest()


_encoded_short = lru_cache(maxsize=4096)(_encoded_or_digested)


def checked_principal(principal: object, source: object) -> str:
    """Return *principal* if it can be one, else raise InvalidKeyError."""
    if not isinstance(principal, str) or not principal:
        raise InvalidKeyError(principal, f"The key function {called(source)}")
    return principal
