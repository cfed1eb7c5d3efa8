"""The documents lead where they say: links, anchors, the index, commands, names to import."""

import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from arctic_orchestration.cli.main import app

ROOT = Path(__file__).parents[1]
DOCS = sorted((ROOT / "docs").glob("*.md"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "BENCHMARKS.md", *DOCS]
INDEX = ROOT / "docs" / "README.md"

_FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_IMPORT = re.compile(
    r"^ *from (arctic_orchestration[\w.]*) import (\([^)]*\)|[\w, ]+)", re.MULTILINE
)


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", _FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in headings}


def links(page: Path) -> list[str]:
    """The relative links of a page, pictures included."""
    found = _LINK.findall(_FENCE.sub("", page.read_text()))
    return [link for link in found if not re.match(r"[a-z]+:", link)]


def is_broken(page: Path, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    return not target.exists() or bool(anchor and anchor not in anchors(target))


def test_the_readme_has_at_most_200_lines() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 200


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_anchors_of_a_page_resolve(page: Path) -> None:
    assert [link for link in links(page) if is_broken(page, link)] == []


def test_a_link_to_no_file_or_no_heading_is_broken() -> None:
    """The control: so the test above can fail."""
    assert is_broken(INDEX, "no-such-page.md")
    assert is_broken(INDEX, "design.md#no-such-heading")
    assert not is_broken(INDEX, "design.md#promises")


def test_each_page_is_linked_from_the_index() -> None:
    assert {page.name for page in DOCS} - {INDEX.name} - set(links(INDEX)) == set()


def public_names() -> dict[str, set[str]]:
    """The table of public modules of the index."""
    rows = re.findall(r"^\| `(arctic_orchestration[\w.]*)` \| (.+) \|$", INDEX.read_text(), re.M)
    return {module: set(re.findall(r"`(\w+)`", names)) for module, names in rows}


def test_the_index_lists_the_names_of_the_public_modules() -> None:
    listed = public_names()
    assert "arctic_orchestration" in listed
    assert listed == {module: set(import_module(module).__all__) for module in listed}


def imports() -> Iterator[tuple[str, str]]:
    """The modules and names that the examples of all pages import."""
    for page in [ROOT / "README.md", *DOCS]:
        for kind, text in _FENCE.findall(page.read_text()):
            for module, names in _IMPORT.findall(text) if kind == "python" else ():
                yield from ((module, name) for name in re.findall(r"\w+", names))


def test_pages_import_public_names_alone() -> None:
    public = public_names()
    assert {name for module, name in imports() if name not in public.get(module, ())} == set()


def test_what_pages_import_is_there() -> None:
    """A module of a package counts, too."""
    for module, name in imports():
        if not hasattr(import_module(module), name):
            import_module(f"{module}.{name}")


def test_an_example_has_one_name_that_is_definitions() -> None:
    """Dagster refuses to load a module with two of them."""
    for page in [ROOT / "README.md", *DOCS]:
        for kind, text in _FENCE.findall(page.read_text()):
            named = re.findall(r"^\w+ = dg\.Definitions\b", text, re.M) if kind == "python" else []
            assert len(named) <= 1, f"{page.name}: {named}"


def commands(command: Any, *path: str) -> Iterator[tuple[str, ...]]:
    """The words of each command that is no group."""
    if not hasattr(command, "list_commands"):
        yield path
        return
    for name in command.list_commands(None):
        found = command.get_command(None, name)
        yield from commands(found.load() if hasattr(found, "load") else found, *path, name)


def test_the_page_of_commands_has_every_command() -> None:
    page = (ROOT / "docs" / "commands.md").read_text()
    rows = re.findall(r"^\| (`arctic .+?) \| ", page, re.MULTILINE)
    listed = {
        (row.split()[1].strip("`"), word) for row in rows for word in re.findall(r"[\w-]+", row)
    }
    found = set(commands(get_command(app)))
    assert len(found) > 60
    assert {path for path in found if (path[0], path[-1]) not in listed} == set()


def test_the_page_of_settings_has_every_variable() -> None:
    """But for the mark by which the demo knows its own processes."""
    package = (ROOT / "arctic_orchestration").rglob("*.py")
    read = {name for file in package for name in re.findall(r'"(ARCTIC_\w+)"', file.read_text())}
    page = (ROOT / "docs" / "configuration.md").read_text()
    assert read - {"ARCTIC_DEMO"} == set(re.findall(r"^\| `(ARCTIC_\w+)` \|", page, re.MULTILINE))
