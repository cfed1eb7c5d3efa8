r"""What Dagster's storage may hold and other databases, and JSON, may not: kept escaped.

A NUL becomes the six characters ``\u0000``, half of a surrogate pair (what ``os.fsdecode`` makes
of a file name that is not UTF-8) for example ``\udce9``: as JSON writes them. A value that is
nested too deeply becomes its JSON text.
"""

import json
import math
import re
from typing import Any

#: How deeply lists and objects of metadata may be nested; serialisers give up at some hundred.
DEEPEST = 100

_UNSTORABLE = re.compile(r"[\0\ud800-\udfff]")
_PAIR = re.compile(r"[\ud800-\udbff][\udc00-\udfff]")


def escaped(text: str) -> str:
    """The text as every database can hold it; nearly always the text itself."""
    if text.isascii() and "\0" not in text:
        return text
    # Both halves of a pair are a letter that was written in two parts.
    text = _PAIR.sub(lambda pair: pair[0].encode("utf-16", "surrogatepass").decode("utf-16"), text)
    return _UNSTORABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def is_storable(text: str) -> bool:
    """Whether every database can hold the text as it is."""
    return escaped(text) == text


def storable(value: Any) -> Any:
    """A JSON value as every serialiser and database can hold it."""
    try:
        return _storable(value, DEEPEST)
    except _TooDeepError:
        return _text_of(value)


def is_too_deep(value: Any) -> bool:
    """Whether a JSON value is nested too deeply to be kept as it is."""
    try:
        _storable(value, DEEPEST)
    except _TooDeepError:
        return True
    return False


class _TooDeepError(Exception):
    """A value is nested more deeply than ``DEEPEST``."""


def _storable(value: Any, levels: int) -> Any:
    if isinstance(value, str):
        return escaped(value)
    if isinstance(value, (dict, list)):
        if not levels:
            raise _TooDeepError
        if isinstance(value, list):
            return [_storable(item, levels - 1) for item in value]
        return {escaped(str(key)): _storable(item, levels - 1) for key, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _text_of(value: Any) -> str:
    try:
        return json.dumps(value)
    except RecursionError:
        return "a value that is nested too deeply to be shown"
