"""Reads YAML and JSON strictly, with errors that name the line; writes YAML that it reads again.

YAML is read with the plain scalars of its version 1.2: ``22:00`` is text and not 1320, ``on`` is
text and not true, a date is text. Easily overlooked errors are refused: a duplicate key, a second
document.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import yaml

from arctic_orchestration.errors import InvalidInput

#: Aliases of aliases make a few lines of YAML larger than any memory.
_MOST_NODES = 2_000_000
_DEEPEST = 100
_SIZE = f"at most {_MOST_NODES:,} values, {_DEEPEST} levels deep, aliases resolved"
#: of text that aliases repeat; a file without aliases may have more
_MOST_CHARACTERS = 20_000_000
_DEPTH_PROBLEM = "nesting depth"
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def load(text: str, *, name: str) -> object:
    """Parses a YAML or JSON text into dicts, lists and scalars.

    Errors:
        InvalidInput: it is neither; names the line.
    """
    begin = text.lstrip("\ufeff \t\r\n")[:1]
    if name.lower().endswith(".json") or begin in ("{", "["):
        try:
            document = json.loads(
                text.removeprefix("\ufeff"), object_pairs_hook=lambda pairs: _once(pairs, name)
            )
            _measure(document, name)
            return document
        except json.JSONDecodeError as error:
            # A flow mapping of YAML begins like JSON.
            if name.lower().endswith(".json"):
                raise InvalidInput(
                    f"{name}:{error.lineno}:{error.colno}", _line(text, error.lineno), "JSON"
                ) from None
        except ValueError as error:
            # A number with thousands of digits.
            raise InvalidInput(name, "...", f"JSON ({error})") from None
        except RecursionError:
            raise InvalidInput(name, "...", f"at most {_DEEPEST} levels") from None
    try:
        return _load_yaml(text, name)
    except yaml.MarkedYAMLError as error:
        # PyYAML 6.0.4 has a limit of its own.
        if _DEPTH_PROBLEM in (error.problem or ""):
            raise InvalidInput(name, "more", _SIZE) from None
        mark = error.problem_mark or error.context_mark
        where = f"{name}:{mark.line + 1}:{mark.column + 1}" if mark else name
        found = _line(text, mark.line + 1) if mark else "..."
        raise InvalidInput(where, found, f"YAML ({error.problem or error.context})") from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise InvalidInput(f"{name}:{line}", _line(text, line), "YAML without control characters")
    except RecursionError:
        raise InvalidInput(name, "...", f"at most {_DEEPEST} levels") from None


def _load_yaml(text: str, name: str) -> object:
    loader = _StrictLoader(text)
    try:
        node = loader.get_single_node()
        # Before construction, because merging a mapping copies it.
        _measure(node, name, most_characters=max(_MOST_CHARACTERS, len(text)))
        return None if node is None else loader.construct_document(node)
    finally:
        loader.dispose()


class _StrictLoader(_Loader):  # type: ignore[misc]
    """YAML's safe loader with the plain scalars of version 1.2, and without duplicate keys."""

    yaml_implicit_resolvers: dict[str, list[Any]] = {}  # noqa: RUF012 (as PyYAML declares it)
    #: of the node that is composed
    _level = 0

    def descend_resolver(self, current_node: yaml.Node, current_index: object) -> None:
        self._level += 1
        if self._level > _DEEPEST + 1:
            # LibYAML's nodes are composed by a recursion in C, which ends the process.
            raise yaml.composer.ComposerError(problem=_DEPTH_PROBLEM)
        super().descend_resolver(current_node, current_index)

    def ascend_resolver(self) -> None:
        self._level -= 1
        super().ascend_resolver()

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            if node.tag in _NUMBERS and ":" in node.value:
                # Of base 60 in version 1.1: a long one takes PyYAML minutes.
                raise ValueError
            return super().construct_object(node, deep=deep)
        except (ValueError, KeyError, AttributeError):
            # PyYAML accepts them: !!int abc, !!bool maybe, a number of thousands of digits.
            problem = f"not a value of {node.tag.replace('tag:yaml.org,2002:', '!!')}"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[object] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag == "tag:yaml.org,2002:merge":
                continue
            if key.value in seen:
                problem = f"the key {key.value} for the second time"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            seen.add(key.value)
        made: dict[Hashable, Any] = super().construct_mapping(node, deep=deep)
        return made


def _plain_scalar(tag: str, pattern: str, first: str) -> None:
    _StrictLoader.add_implicit_resolver(
        f"tag:yaml.org,2002:{tag}", re.compile(f"(?:{pattern})$"), list(first)
    )


_plain_scalar("null", "~|null|Null|NULL|", "~nN")
_StrictLoader.add_implicit_resolver("tag:yaml.org,2002:null", re.compile("$"), [""])
_plain_scalar("bool", "true|True|TRUE|false|False|FALSE", "tTfF")
_plain_scalar("int", "[-+]?(?:0|[1-9][0-9]*)", "-+0123456789")
_plain_scalar(
    "float",
    r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?",
    "-+.0123456789",
)
_plain_scalar("float", r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)", "-+.")
_plain_scalar("merge", "<<", "<")


def _once(pairs: Sequence[tuple[str, Any]], name: str) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise InvalidInput(name, repeated_key(pairs), "each key once in a mapping")
    return made


def repeated_key(pairs: Sequence[tuple[str, Any]]) -> str:
    """Returns the first key that occurs again, of which there must be one."""
    times = Counter(key for key, _ in pairs)
    return next(key for key in times if times[key] > 1)


def _measure(root: object, name: str, *, most_characters: float = math.inf) -> None:
    """Refuses documents that aliases make too large or too deep.

    Takes time for the text, and not for its expanded aliases.
    """
    #: of each measured node, by its identity: values, levels, characters
    measured: dict[int, tuple[int, int, int]] = {}
    begun: set[int] = set()
    waiting = [root]
    while waiting:
        node = waiting[-1]
        inner = _inside(node)
        new = [one for one in inner if id(one) not in measured]
        if id(node) not in begun and new:
            begun.add(id(node))
            waiting += new
            continue
        if id(node) in measured:
            waiting.pop()
            continue
        if new:
            # It contains itself.
            raise InvalidInput(name, "more", _SIZE)
        values = 1 + sum(measured[id(one)][0] for one in inner)
        levels = 1 + max((measured[id(one)][1] for one in inner), default=0)
        if values > _MOST_NODES or levels > _DEEPEST + 1:
            raise InvalidInput(name, "more", _SIZE)
        characters = _characters(node) + sum(measured[id(one)][2] for one in inner)
        if characters > most_characters:
            expected = f"at most {_MOST_CHARACTERS:,} characters, aliases resolved"
            raise InvalidInput(name, "more", expected)
        measured[id(node)] = values, levels, characters
        waiting.pop()


def _inside(node: object) -> list[Any]:
    """Returns the values in a node of YAML, or in a mapping or list of JSON."""
    if isinstance(node, yaml.MappingNode):
        return [value for _, value in node.value]
    if isinstance(node, yaml.SequenceNode):
        return list(node.value)
    if isinstance(node, Mapping):
        return list(node.values())
    return list(node) if isinstance(node, list) else []


def _characters(node: object) -> int:
    """Returns the length of the text in a node of YAML itself, without that of its values."""
    if isinstance(node, yaml.ScalarNode):
        return len(node.value)
    if isinstance(node, yaml.MappingNode):
        return sum(len(key.value) for key, _ in node.value if isinstance(key, yaml.ScalarNode))
    return 0


def _line(text: str, number: int) -> str:
    lines = text.splitlines()
    return lines[number - 1].strip() if 0 < number <= len(lines) else ""


def dump(document: object) -> str:
    """Returns YAML that :func:`load` reads as the document."""
    return str(yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100))


class _Dumper(yaml.SafeDumper):
    """Quotes the texts that only YAML 1.2 reads as numbers, 1e5 and -.5, and escapes U+0085."""

    def ignore_aliases(self, _: object) -> bool:
        return True

    def analyze_scalar(self, scalar: str) -> yaml.emitter.ScalarAnalysis:
        analysis = super().analyze_scalar(scalar)
        # In single quotes it is read as the end of a line: a space.
        analysis.allow_single_quoted &= "\x85" not in scalar
        return analysis


_Dumper.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?$"),
    list("-+.0123456789"),
)
