r"""Escapes values of Dagster's storage that other databases and JSON cannot store.

As in JSON, a NUL becomes the six characters ``\u0000``, and half of a surrogate pair (which
``os.fsdecode`` makes of a file name that is not UTF-8) becomes for example ``\udce9``. A value that
is nested too deeply becomes its JSON text.
"""

import json
import math
import re
from typing import Any

#: The maximum nesting of lists and objects of metadata; serializers fail at some hundred levels.
DEEPEST = 100
#: The characters of an announced asset or partition key. Longer ones do not fit into the indexes of
#: Dagster's event log.
LONGEST_KEY = 255
#: The characters of an asset key in Dagster's table of assets: as JSON, in ASCII.
_LONGEST_ASSET = 512
#: what a value of :func:`is_asset_key` should be
ASSET_KEY = f"an asset key such as raw/flights, of at most {_LONGEST_ASSET} characters as JSON"

_UNSTORABLE = re.compile(r"[\0\ud800-\udfff]")
#: ``__class__``, ``__enum__`` and others.
_RESERVED = re.compile(r"__\w+__")
_PAIR = re.compile(r"[\ud800-\udbff][\udc00-\udfff]")


def escaped(text: str) -> str:
    """Returns the text in a form that every database can store; nearly always the text itself."""
    if text.isascii() and "\0" not in text:
        return text
    # Both halves of a pair are one character that was written in two parts.
    text = _PAIR.sub(lambda pair: pair[0].encode("utf-16", "surrogatepass").decode("utf-16"), text)
    return _UNSTORABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def is_storable(text: str) -> bool:
    """Returns whether every database can store the text unchanged."""
    return escaped(text) == text


def storable(value: Any) -> Any:
    """Returns a JSON value in a form that every serializer and database can store."""
    try:
        return _storable(value, DEEPEST)
    except _TooDeepError:
        return _text_of(value)


def is_too_deep(value: Any) -> bool:
    """Returns whether a JSON value is nested too deeply to be stored unchanged."""
    try:
        _storable(value, DEEPEST)
    except _TooDeepError:
        return True
    return False


def is_asset_key(text: str) -> bool:
    """Returns whether Dagster can store an asset key, such as ``raw/flights``."""
    parts = text.split("/")
    return all(parts) and len(json.dumps(parts)) <= _LONGEST_ASSET


def reserved_key(value: Any) -> str | None:
    """Returns a key of a JSON value that Dagster's serializer would take for a mark of its own.

    An event with such a key is stored, and then cannot be read.
    """
    if isinstance(value, dict):
        marked = (key for key in value if _RESERVED.fullmatch(key))
        return next(marked, None) or reserved_key(list(value.values()))
    if isinstance(value, list):
        return next(filter(None, map(reserved_key, value)), None)
    return None


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
