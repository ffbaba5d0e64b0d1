"""
What OpenAPI documents say of limits: responses, header fields, and quotas.

What users say themselves stays. What they say of a response without its fields, or
without its body, is completed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from fastapi.routing import APIRoute

from throttled_views._declaration import limiting_dependencies
from throttled_views._parts import Held
from throttled_views._statuses import status_by_default
from throttled_views.headers import (
    QUOTA_EXCEEDED,
    REDUCED_CAPACITY,
    HeaderPolicy,
    IETFHeaders,
)

__all__ = ["complete", "document", "held_by_dependencies"]

QUOTAS = "x-throttle"
"""The extension of an operation that lists its quotas."""

_Document: TypeAlias = dict[str, Any]

_RETRY_AFTER = {
    "description": "Seconds until the same request is admitted, if it ever is.",
    "schema": {"type": "integer", "minimum": 1},
}
_NUMBERS = (
    "Requests that a client may make at once.",
    "Requests that the client may make right now.",
    "Seconds until the client may make all of them again.",
)
# Structured fields, so that there is no more to say of them in a schema.
_TEXTS = (
    ("The limits: capacity and seconds to fill it.", '"1";q=100;w=60'),
    ("What is left: requests, and seconds until all are back.", '"1";r=99;t=1'),
)
_PLAIN = {
    "type": "object",
    "title": "RateLimitDetail",
    "properties": {"detail": {"type": "string"}},
    "required": ["detail"],
}
_PROBLEM = {
    "type": "object",
    "title": "RateLimitProblem",
    "description": "Problem details, as RFC 9457 has them.",
    "properties": {
        "type": {"type": "string", "format": "uri"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "violated-policies": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["type", "title", "status", "detail", "violated-policies"],
}


def held_by_dependencies(dependant: Any) -> Iterator[Held]:
    """Yield the limits that dependencies hold an endpoint to, each once."""
    for declaration in limiting_dependencies(dependant):
        for part in declaration.parts:
            assert part.limiter is not None  # noqa: S101 - for type checkers
            yield from declaration.held(part.limiter)


class _Quotas(list[str]):
    """What we write ourselves, and not the user."""


def document(route: APIRoute, held: Sequence[Held]) -> None:
    """Let what *route* says of itself have what it is *held* to."""
    held = _enforced(held)
    if not held:
        return
    extra = dict(_extra_of(route))
    # Older FastAPI makes included routes anew, of what we have written on the first.
    if isinstance(extra.get(QUOTAS, _Quotas()), _Quotas):
        extra[QUOTAS] = _Quotas(each.text for each in held)
    route.openapi_extra = extra
    route.responses = _with_ours(route.responses, route, held)


def complete(operation: _Document, place: Any, held: Sequence[Held]) -> None:
    """
    Let *operation* of a finished document have what its route is *held* to.

    Args:
        operation: What the document says already, with what `document` has written.
        place: The route, as it is where its routers are included.
        held: All its limits.
    """
    held = _enforced(held)
    if not held:
        return
    written = _extra_of(place).get(QUOTAS, _Quotas())
    if isinstance(written, _Quotas) and operation.get(QUOTAS, written) == written:
        operation[QUOTAS] = [each.text for each in held]
    responses = _with_ours(operation.get("responses", {}), place, held)
    operation["responses"] = {str(status): each for status, each in responses.items()}


def _enforced(held: Sequence[Held]) -> Sequence[Held]:
    """Return what clients notice: not what is only observed."""
    return [each for each in held if not each.limit.shadow]


def _extra_of(place: Any) -> _Document:
    """Return what is written over what FastAPI says of a route."""
    extra: _Document | None = place.openapi_extra
    return extra or {}


def _with_ours(
    theirs: Mapping[Any, _Document], place: Any, held: Sequence[Held]
) -> dict[int | str, _Document]:
    """Return *theirs*, the responses of a route, completed."""
    responses = dict(theirs)
    names = {str(each): each for each in responses}
    elsewhere: _Document = _extra_of(place).get("responses", {})
    for status, ours in _responses(place, held):
        if str(status) not in elsewhere:
            name = names.get(str(status), status)
            responses[name] = _completed(responses.get(name, {}), ours)
    return responses


def _responses(place: Any, held: Sequence[Held]) -> Iterator[tuple[int, _Document]]:
    fields: _Document = {}
    for each in held:
        fields.update(_fields_of(each.limiter.renderer.policy))
    success = status_by_default(place)
    if success is not None and fields:
        yield success, {"headers": fields}
    yield 429, _refusal(held, QUOTA_EXCEEDED, {**fields, **_retry_fields(held)})
    denying = [each for each in held if each.denies]
    if denying:
        yield 503, _refusal(denying, REDUCED_CAPACITY, {"Retry-After": _RETRY_AFTER})


def _fields_of(policy: HeaderPolicy | None) -> _Document:
    """Return the fields that *policy* writes on any response."""
    if policy is None:
        return {}
    names = policy.names[:-1]
    if isinstance(policy, IETFHeaders):
        return {
            name: {"description": text, "schema": {"type": "string"}, "example": like}
            for name, (text, like) in zip(names, _TEXTS, strict=True)
        }
    schema = {"type": "integer", "minimum": 0}
    return {
        name: {"description": text, "schema": schema}
        for name, text in zip(names, _NUMBERS, strict=True)
    }


def _retry_fields(held: Sequence[Held]) -> _Document:
    policies = [each.limiter.renderer.policy for each in held]
    names = [each.names[-1] if each else "Retry-After" for each in policies]
    return dict.fromkeys(names, _RETRY_AFTER)


def _refusal(
    held: Sequence[Held], problem: Mapping[str, object], fields: _Document
) -> _Document:
    content: _Document = {}
    for each in held:
        # A dependency can only raise, and FastAPI has no problem details.
        if each.limiter.renderer.problem_details and not each.by_dependency:
            violated: list[str] = []
            example = {**problem, "violated-policies": violated}
            body = {"schema": _PROBLEM, "example": example}
            content["application/problem+json"] = body
        else:
            example = {"detail": problem["detail"]}
            content["application/json"] = {"schema": _PLAIN, "example": example}
    return {
        "description": problem["detail"],
        "headers": fields,
        "content": content,
    }


def _completed(theirs: _Document, ours: _Document) -> _Document:
    """Return *theirs*, with what only *ours* says."""
    known = {name.lower() for name in theirs.get("headers", {})}
    fields = {
        name: field
        for name, field in ours["headers"].items()
        if name.lower() not in known
    }
    headers = {**theirs.get("headers", {}), **fields}
    both = {**ours, **theirs, "headers": headers}
    if "model" in theirs and "content" not in theirs:
        both.pop("content", None)
    elif _is_ours(theirs):
        both["content"] = {**theirs["content"], **ours.get("content", {})}
    return both


def _is_ours(response: _Document) -> bool:
    """Tell whether all bodies of *response* are as we describe them."""
    content: _Document = response.get("content", {})
    schemas = [media.get("schema") for media in content.values()]
    return bool(schemas) and all(each in (_PLAIN, _PROBLEM) for each in schemas)
