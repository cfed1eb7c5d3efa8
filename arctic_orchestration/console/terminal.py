r"""Makes foreign text harmless for a terminal and for programs that read lines.

Names of assets, partition keys, metadata and reasons come from anywhere. Raw, an escape sequence in
one would clear the screen or set its title, a newline would begin a line that looks like ours, and
half of a surrogate pair could not be printed at all. All commands print through this file: text as
``escape`` writes it, or as JSON whose strings have such characters escaped.
"""

import codecs
import io
import json
import re
import sys
from typing import Any

import rich.console
from rich.text import Text

#: C0 and C1 controls, DEL, separators of lines, marks of direction, halves of surrogate pairs.
_LINE = "\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff"
_ON_A_LINE = re.compile(f"[{_LINE}]")
#: The same without tabs and newlines, which our own texts have.
_IN_LINES = re.compile(f"(?![\t\n])[{_LINE}]")
#: What may be read as the begin of a tag. Rich's own function leaves backslashes before other
#: brackets, which Rich then drops, and doubles one at the end, which it prints if no tag follows.
_BRACKETS = re.compile(r"(\\*)(\[|\Z)")
_TAG = re.compile(r"[a-z#/@]|\Z")
#: ends backslashes, and prints nothing
_NOTHING = "[none][/none]"
_NAMES = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def visible(text: str, *, lines: bool = False) -> str:
    r"""Returns the text with ``\x1b``, ``\n``, ``\u2028`` in place of control characters.

    With ``lines``, newlines and tabs stay: for our own messages of several lines.
    """
    if text.isprintable():
        return text
    return (_IN_LINES if lines else _ON_A_LINE).sub(_shown, text)


def escape(text: str, *, lines: bool = False) -> str:
    """Returns the text as markup that prints it visibly, whatever markup follows it."""
    return _BRACKETS.sub(_escaped, visible(text, lines=lines))


def json_text(document: Any, *, indent: int | None = None) -> str:
    """Returns the document as JSON that any terminal and any encoding accepts.

    Values that JSON does not have are those with a ``to_json``.
    """
    text = json.dumps(document, indent=indent, ensure_ascii=False, default=_form)
    return _IN_LINES.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def escape_unencodable() -> None:
    """Makes standard output write letters that its encoding lacks as JSON escapes them."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        codecs.register_error("arctic", _escaped_letters)
        sys.stdout.reconfigure(errors="arctic")


class Console(rich.console.Console):
    """Rich's console; unescaped text does not control the terminal either, and ``:b:`` stays."""

    def __init__(self, **how: Any) -> None:
        super().__init__(emoji=False, **how)

    def render_str(self, text: str, **how: Any) -> Text:
        return super().render_str(visible(text, lines=True), **how)


def _form(value: Any) -> Any:
    return value.to_json()


def _escaped_letters(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


def _escaped(found: re.Match[str]) -> str:
    backslashes, bracket = found.groups()
    before = f"{backslashes * 2}{_NOTHING}" if backslashes else ""
    is_tag = bracket and _TAG.match(found.string, found.end())
    return f"{before}\\[" if is_tag else before + bracket


def _shown(found: re.Match[str]) -> str:
    letter = found[0]
    code = ord(letter)
    return _NAMES.get(letter) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")
