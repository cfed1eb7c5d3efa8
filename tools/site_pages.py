"""Writes the pages of the documentation's site into a folder, for MkDocs: ``make docs``.

They are those of ``docs/``, the files of the repository that are read on their own, and, below
``reference/``, pages that are generated from the command line, the models of schedules and the
description of the REST API.
"""

import json
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from typer.core import TyperArgument
from typer.main import get_command

from arctic_orchestration.cli.main import app
from arctic_orchestration.console.lazy_command import LazyCommand
from arctic_orchestration.schedules.json_schema import schedules_schema
from arctic_orchestration.service.app import api_description

ROOT = Path(__file__).parents[1]
#: Files of the repository, and their names on the site.
_REPOSITORY = {
    "README.md": "overview.md",
    "BENCHMARKS.md": "BENCHMARKS.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
}
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s#:]+)(#[^)\s]*)?\)")


def write_pages(folder: Path) -> None:
    """Writes all pages and pictures; what was in the folder before is deleted."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "docs", folder)
    for page in folder.glob("*.md"):
        page.write_text(with_links_of_the_site(page.read_text(), ROOT / "docs"))
    for source, name in _REPOSITORY.items():
        text = (ROOT / source).read_text()
        (folder / name).write_text(with_links_of_the_site(text, ROOT))
    (folder / "reference").mkdir()
    generated = {
        "commands": _commands_page(),
        "schedule-files": _schedule_files_page(),
        "rest": _rest_page(),
    }
    for name, text in generated.items():
        (folder / "reference" / f"{name}.md").write_text(text)


def with_links_of_the_site(text: str, home: Path) -> str:
    """Returns a page of the folder ``home`` with links to pages of the site.

    What is not on the site, such as code, is named without a link.
    """

    def lead(match: re.Match[str]) -> str:
        picture, label, path, anchor = match.groups()
        target = (home / path).resolve()
        if target.parent == ROOT / "docs":
            name = target.name
        elif target.parent == ROOT and target.name in _REPOSITORY:
            name = _REPOSITORY[target.name]
        else:
            return str(label)
        return f"{picture}[{label}]({name}{anchor or ''})"

    return _LINK.sub(lead, text)


def _commands_page() -> str:
    lines = ["# Every option", "", "Generated from the help of each command.", ""]
    for path, command in _commands("arctic", get_command(app)):
        lines += [f"## {path}", "", _help(command.help or ""), ""]
        parameters = [one for one in command.params if one.name != "help" and not _hidden(one)]
        if parameters:
            lines += ["| parameter | default | |", "|---|---|---|"]
            lines += [_parameter(one) for one in parameters] + [""]
    return "\n".join(lines)


def _help(text: str) -> str:
    # A comment to copy would be a heading.
    return re.sub(r"^(#.*)$", r"`\1`", text, flags=re.MULTILINE)


def _commands(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(command, LazyCommand):
        command = command.load()
    subcommands: Mapping[str, Any] = getattr(command, "commands", {})
    if not subcommands:
        yield path, command
    for name, subcommand in subcommands.items():
        yield from _commands(f"{path} {name}", subcommand)


def _hidden(parameter: Any) -> bool:
    return bool(getattr(parameter, "hidden", False))


def _parameter(parameter: Any) -> str:
    if isinstance(parameter, TyperArgument):
        name = parameter.metavar or str(parameter.name).upper()
    else:
        name = ", ".join([*parameter.opts, *parameter.secondary_opts])
    default = parameter.default
    shown = "required" if parameter.required else "" if default in (None, False, ()) else default
    return _row(f"`{name}`", f"`{shown}`" if shown != "" else "", parameter.help or "")


def _schedule_files_page() -> str:
    schema = schedules_schema()
    definitions: dict[str, Any] = schema["$defs"]
    lines = [
        "# Files of schedules",
        "",
        "Generated from the models that read them. `arctic schema` writes the same as a JSON "
        "Schema, with which editors complete and check.",
        "",
    ]
    first = ["Schedule", "Target", "Trigger", "Constraint"]
    for name in [*first, *sorted(set(definitions) - set(first))]:
        definition = definitions[name]
        lines += [f"## {name}", "", definition.get("description", ""), ""]
        lines += ["| field | form | default | |", "|---|---|---|---|"]
        for field, of in definition.get("properties", {}).items():
            is_required = field in definition.get("required", ())
            default = "required" if is_required else _code(of["default"]) if "default" in of else ""
            lines.append(_row(f"`{field}`", _form(of), default, of.get("description", "")))
        lines.append("")
    return "\n".join(lines)


def _form(of: Mapping[str, Any]) -> str:
    if "$ref" in of:
        name = of["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in of:
        return " or ".join(_form(one) for one in of["anyOf"])
    if "enum" in of:
        return ", ".join(_code(one) for one in of["enum"])
    if "const" in of:
        return _code(of["const"])
    if of.get("type") == "array":
        return f"list of {_form(of.get('items', {}))}"
    examples = of.get("examples")
    return str(of.get("type", "any")) + (f", as {_code(examples[0])}" if examples else "")


def _rest_page() -> str:
    lines = [
        "# Every route",
        "",
        "Generated from the description that `arctic serve` gives at `/api/v1/openapi.json`, which "
        "has the models of bodies and answers too.",
        "",
    ]
    for path, methods in api_description()["paths"].items():
        for method, of in methods.items():
            lines += [f"## {method.upper()} {path}", "", of.get("description", ""), ""]
            if of.get("parameters"):
                lines += ["| parameter | in | |", "|---|---|---|"]
                lines += [
                    _row(f"`{one['name']}`", one["in"], one.get("description", ""))
                    for one in of["parameters"]
                ]
                lines.append("")
    return "\n".join(lines)


def _code(value: object) -> str:
    return f"`{value if isinstance(value, str) else json.dumps(value)}`" if value != "" else "empty"


def _row(*cells: str) -> str:
    return "| " + " | ".join(" ".join(cell.replace("|", "\\|").split()) for cell in cells) + " |"


if __name__ == "__main__":
    write_pages(Path(sys.argv[1]))
