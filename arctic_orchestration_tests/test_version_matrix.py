"""The rows that several versions wrote are compared: the first that differs is named."""

from pathlib import Path

from tools.version_matrix import first_difference


def written(folder: Path, **tables: str) -> Path:
    folder.mkdir()
    for table, rows in tables.items():
        (folder / f"{table}.jsonl").write_text("".join(f"{row}\n" for row in rows.split()))
    return folder


def test_corner_table_and_row_of_the_first_difference_are_named(tmp_path: Path) -> None:
    """The same rows differ nowhere; another row, one too few, no table, and nothing at all do."""
    rows = {"flights": "1 2 3", "weather": "5"}
    first = written(tmp_path / "first", **rows)
    same = written(tmp_path / "same", **rows)
    assert first_difference([first, same]) is None
    for name, other, expected in (
        ("another", {**rows, "flights": "1 4 3"}, "flights.jsonl: row 2: 4; first has 2"),
        ("short", {**rows, "flights": "1 2"}, "flights.jsonl: row 3: None; first has 3"),
        ("lost", {"flights": "1 2 3"}, "weather.jsonl: row 1: no such table; first has 5"),
    ):
        folder = written(tmp_path / name, **other)
        assert first_difference([first, same, folder]) == f"{name}: {expected}"
    assert first_difference([tmp_path / "none"]) == "none: no rows were written"
