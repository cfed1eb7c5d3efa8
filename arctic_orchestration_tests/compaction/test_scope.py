"""Which tables are compacted: patterns of names, and whether they are only observed."""

import pytest

from arctic_orchestration.compaction.planning.scope import EVERYTHING, Mode, Scope
from arctic_orchestration.errors import InvalidInput


@pytest.mark.parametrize(
    ("pattern", "covered"),
    [
        ("nyc.flights", {"nyc.flights"}),
        ("nyc.*", {"nyc.flights", "nyc.raw.flights", "nyc.t[1]"}),
        ("*.flights", {"nyc.flights", "nyc.raw.flights"}),
        ("*", {"nyc.flights", "nyc.raw.flights", "sfo.weather", "nyc.t[1]"}),
        ("nyc", set()),
        ("NYC.*", set()),
        ("nyc.t[1]", {"nyc.t[1]"}),
    ],
)
def test_a_pattern_matches_the_whole_name(pattern: str, covered: set[str]) -> None:
    """A star stands for dots too; letters have their case."""
    scope = Scope.of([pattern], "run")
    names = ("nyc.flights", "nyc.raw.flights", "sfo.weather", "nyc.t[1]")
    assert {name for name in names if scope.covers(name)} == covered


def test_names_are_the_patterns_without_wildcards() -> None:
    """Each of them once, in their order."""
    scope = Scope.of(["nyc.b", "nyc.*", "nyc.a", "nyc.b"], "observe")
    assert (scope.names, scope.mode) == (("nyc.b", "nyc.a"), Mode.OBSERVE)
    assert EVERYTHING.covers("any.table")


@pytest.mark.parametrize("tables", [(), "nyc.flights", [""], ["nyc..a"], [7]])
def test_tables_that_are_no_patterns_are_refused(tables: object) -> None:
    """A text would be taken for its letters."""
    with pytest.raises(InvalidInput, match="tables: got .*, expected names or patterns"):
        Scope.of(tables, "run")  # type: ignore[arg-type]
