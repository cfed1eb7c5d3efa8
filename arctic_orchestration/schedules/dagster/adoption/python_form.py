"""The Python of a schedule, from its form."""

import ast
from collections.abc import Iterable, Mapping
from typing import Any

#: fields of the form that stand in every schedule's Python, in this order
_FIRST = ("name", "description", "target", "trigger", "constraints")


def python_of(form: Mapping[str, Any], request: str | None = None) -> str:
    """Returns the call that makes a schedule with this form.

    ``request`` is the expression of its request hook.
    """
    names = [*(name for name in _FIRST if name in form), *(n for n in form if n not in _FIRST)]
    lines = [f"    {name}={_value(name, form[name])}," for name in names]
    if request is not None:
        lines.append(f"    request={request},")
    return "\n".join(["Schedule(", *lines, ")"])


def imports_of(calls: Iterable[str]) -> str:
    """Returns the imports that such calls need."""
    nodes = ast.walk(ast.parse("\n".join(calls)))
    used = {node.id for node in nodes if isinstance(node, ast.Name)}
    ours = ", ".join(name for name in ("Schedule", "on", "only", "request_of") if name in used)
    line = f"from arctic_orchestration import {ours}"
    return f"import dagster as dg\n\n{line}" if "dg" in used else line


def _value(name: str, value: Any) -> str:
    if name == "target":
        if "job" in value:
            return repr(value["job"])
        return f"dg.AssetSelection.assets({', '.join(map(repr, value['assets']))})"
    if name == "trigger":
        return _trigger(value)
    if name == "constraints":
        return f"[{', '.join(f'only.{_call(one)}' for one in value)}]"
    return repr(value)


def _trigger(form: Mapping[str, Any]) -> str:
    ((kind, fields),) = form.items()
    if kind in ("any_of", "all_of", "then"):
        plain = fields if isinstance(fields, list) else fields["of"]
        times = {} if isinstance(fields, list) else {k: v for k, v in fields.items() if k != "of"}
        parts = [*map(_trigger, plain), *(f"{name}={text!r}" for name, text in times.items())]
        return f"on.{kind}({', '.join(parts)})"
    return f"on.{_call(form)}"


def _call(form: Mapping[str, Any]) -> str:
    ((kind, fields),) = form.items()
    return f"{kind}({', '.join(f'{name}={value!r}' for name, value in fields.items())})"
