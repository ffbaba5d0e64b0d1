"""What an operation of an OpenAPI document says, and whether an answer is so."""

from collections.abc import Mapping
from typing import Any

import httpx
from openapi_schema_validator import validate

FIELDS = ["RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"]


def fields(response: Mapping[str, Any]) -> list[str]:
    """Return the names of the documented header fields."""
    return [*response.get("headers", {})]


def assert_is_documented(document: Mapping[str, Any], answer: httpx.Response) -> None:
    """Check the fields and the body of *answer* against its description."""
    response = document["responses"][str(answer.status_code)]
    ours = [each for each in answer.headers if "ratelimit" in each or "retry" in each]
    assert {*ours} == {each.lower() for each in fields(response)}
    for name, field in response.get("headers", {}).items():
        value: object = answer.headers[name]
        if field["schema"]["type"] == "integer":
            value = int(answer.headers[name])
        validate(value, field["schema"])
    if answer.status_code >= 400:
        media_type = answer.headers["Content-Type"]
        schema = response["content"][media_type]["schema"]
        validate(answer.json(), schema)
        example = response["content"][media_type]["example"]
        validate(example, schema)
        assert answer.json()["detail"] == example["detail"]
