"""Bodies of requests: limited in size and time, strict JSON or YAML."""

import asyncio
import json
import re
from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import parse_qs

from fastapi import Depends, Request
from starlette.requests import ClientDisconnect

from arctic_orchestration.errors import InvalidInput, RequestRefused
from arctic_orchestration.specification import Specification
from arctic_orchestration.yaml_file import load

MOST_BYTES = 2_000_000
#: of YAML as JSON, which may be twice as long without aliases
_MOST_RESOLVED = 2 * MOST_BYTES
#: how long a body may take to arrive
LONGEST_SECONDS = 60.0
_JSON = re.compile(r"application/([a-z0-9.+-]+\+)?json", re.IGNORECASE)
_FORM = re.compile(r"application/x-www-form-urlencoded", re.IGNORECASE)
_YAML = re.compile(r"(application|text)/(x-)?yaml", re.IGNORECASE)
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


class Body:
    """The dependency of a route that takes a body; gives its text.

    Args:
        most_bytes: a larger body is refused.
        yaml: whether YAML is accepted beside JSON.
    """

    def __init__(self, *, most_bytes: int = MOST_BYTES, yaml: bool = False) -> None:
        self.most_bytes = most_bytes
        self.accepted = {"application/json": _JSON} | ({"application/yaml": _YAML} if yaml else {})

    async def __call__(self, request: Request) -> str:
        media_type = request.headers.get("content-type", "").partition(";")[0].strip()
        if not any(form.fullmatch(media_type) for form in self.accepted.values()):
            expected = " or ".join(self.accepted)
            raise RequestRefused(415, f"Content-Type: got {media_type!r}, expected {expected}")
        parts, size = [], 0
        try:
            async with asyncio.timeout(LONGEST_SECONDS):
                async for part in request.stream():
                    size += len(part)
                    if size > self.most_bytes:
                        raise RequestRefused(413, f"The body has more than {self.most_bytes} bytes")
                    parts.append(part)
        except ClientDisconnect:
            raise RequestRefused(400, "The body ended early")
        except TimeoutError:
            raise RequestRefused(408, f"The body took more than {LONGEST_SECONDS:.0f} s")
        try:
            return b"".join(parts).decode()
        except UnicodeDecodeError as error:
            raise RequestRefused(400, f"The body is not UTF-8: byte {error.start}")


class Form(Body):
    """The dependency of a route that takes the form of a page; gives its fields.

    Other sites can send forms, too: it is taken only if the guard could see where it is from.
    """

    def __init__(self) -> None:
        super().__init__()
        self.accepted = {_FORM.pattern: _FORM}

    async def __call__(self, request: Request) -> dict[str, list[str]]:  # type: ignore[override]
        if not {"sec-fetch-site", "origin"} & set(request.headers):
            raise RequestRefused(403, "A form must come from a browser; programs use the API")
        text = await super().__call__(request)
        try:
            fields = parse_qs(text, keep_blank_values=True, errors="strict", max_num_fields=100)
        except ValueError as error:
            raise RequestRefused(400, f"The form cannot be read: {error}")
        if "\0" in text or "%00" in text:
            raise RequestRefused(400, "The form has text with character 0")
        return fields


def parse(text: str, *, name: str = "body.json") -> object:
    """Returns the document of a body; a name that ends in ``.json`` excludes YAML.

    Errors:
        RequestRefused: 400; malformed, a key twice, too deep, or text that no database can hold.
            413; aliases make it larger than a body may be.
    """
    try:
        document = load(text, name=name)
        json.dumps(document, allow_nan=False)
    except InvalidInput as error:
        raise RequestRefused(400, str(error), problems=[error])
    except (TypeError, ValueError):
        raise RequestRefused(400, "The body has a number or key that JSON has not, such as NaN")
    content = json.dumps(document, ensure_ascii=False)
    if not name.endswith(".json") and len(content) > _MOST_RESOLVED:
        raise RequestRefused(
            413, f"The body has more than {_MOST_RESOLVED} characters, aliases resolved"
        )
    # Lone halves of surrogate pairs and NUL come in as escapes.
    if _UNSTORABLE.search(content) or "\\u0000" in text:
        raise RequestRefused(400, "The body has text with character 0 or half a surrogate pair")
    return document


def json_object(body: Body) -> Any:
    """Returns the dependency that gives the JSON object of a body."""

    def mapping(text: Annotated[str, Depends(body)]) -> dict[str, Any]:
        document = parse(text)
        if not isinstance(document, Mapping):
            problem = InvalidInput("body", document, "a JSON object")
            raise RequestRefused(422, str(problem), problems=[problem])
        return dict(document)

    return Depends(mapping)


JsonObject = Annotated[dict[str, Any], json_object(Body())]


def takes(form: type[Specification]) -> dict[str, Any]:
    """Returns what OpenAPI says of a route whose body is parsed as a form."""
    return body_schema(form.model_json_schema())


def body_schema(schema: Mapping[str, Any], *media_types: str) -> dict[str, Any]:
    """Returns what OpenAPI says of a route whose body is read by :class:`Body`."""
    content = {name: {"schema": dict(schema)} for name in media_types or ("application/json",)}
    return {"requestBody": {"required": True, "content": content}}
