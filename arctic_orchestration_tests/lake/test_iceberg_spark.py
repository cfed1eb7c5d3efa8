"""Tables of Iceberg's own Spark: its reader finds each row again, in format 3 with its lineage.

The scenarios and their tables are in :mod:`arctic_orchestration_tests.lake.iceberg_spark`, which
runs once, in the environment that ``sh tools/ensure_iceberg_spark`` makes. Spark fetches Iceberg's
runtime from Maven Central. A row is read as its row id, the sequence number that last updated it,
and its columns.
"""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

_ROOT = Path(__file__).parents[2]
_PYTHON = _ROOT / "build" / "iceberg-spark" / "bin" / "python"
_PROGRAM = "arctic_orchestration_tests.lake.iceberg_spark"
_DATA, _DELETES = 0, 1
_FULL = os.environ.get("ARCTIC_PROOF") == "full"
_TABLES, _SECONDS = (1_000, 4 * 3_600) if _FULL else (4, 900)

pytestmark = pytest.mark.timeout(_SECONDS + 300)

Seen = dict[str, Any]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """What the scenarios saw; without the environment, or the runtime, a skip."""
    if not _PYTHON.exists():
        pytest.skip("no Spark with a runtime of Iceberg: sh tools/ensure_iceberg_spark makes one")
    command = [str(_PYTHON), "-m", _PROGRAM, str(tmp_path_factory.mktemp("iceberg"))]
    # PySpark returns timestamps in the zone of the machine.
    environment = {**os.environ, "ARCTIC_RANDOM_TABLES": str(_TABLES), "TZ": "UTC"}
    done = subprocess.run(
        command, cwd=_ROOT, env=environment, capture_output=True, text=True, timeout=_SECONDS
    )
    if "unresolved dependency" in done.stderr:
        pytest.skip("Spark cannot fetch Iceberg's runtime from Maven Central")
    assert done.returncode == 0, done.stderr[-4000:]
    found: Seen = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.fixture
def scenario(seen: Seen, request: pytest.FixtureRequest) -> Seen:
    """What the scenario with the name of the parameter saw."""
    found: Seen = seen[request.param]
    assert "error" not in found, found["error"]
    return found


def of(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("scenario", [name], indirect=True)


@of("appended")
def test_rows_keep_their_lineage_in_a_merge_by_arrow(scenario: Seen) -> None:
    """Three inserts of three rows are the row ids 0 to 8, and the sequence numbers 1 to 3."""
    assert scenario["before"]["rows"] == [[n, n // 3 + 1, n + 1, str(n + 1)] for n in range(9)]
    assert "by Arrow" in scenario["how"][0]
    assert scenario["after"]["rows"] == scenario["before"]["rows"]
    assert scenario["after"]["files"] == [[_DATA, "PARQUET", 1]]
    # The merged file has its ids as a column, and the list reserves nine for it, as Java's does.
    assert scenario["after"]["next_row_id"] == 18
    assert scenario["again"]["rows"] == [*scenario["after"]["rows"], [18, 5, 10, "ten"]]


@of("appended")
def test_rows_keep_their_lineage_when_merged_rows_are_merged_again(scenario: Seen) -> None:
    """One file has the lineage as columns, the other one does not."""
    assert scenario["last"]["rows"] == scenario["again"]["rows"]
    assert scenario["last"]["files"] == [[_DATA, "PARQUET", 1]]


@of("deleted")
def test_deletion_vectors_are_applied_and_removed(scenario: Seen) -> None:
    """Those of the other partition stay until its files are merged."""
    assert [_DELETES, "PUFFIN", 4] in scenario["before"]["files"]
    assert scenario["half"]["rows"] == scenario["before"]["rows"]
    assert [_DELETES, "PUFFIN", 2] in scenario["half"]["files"]
    assert scenario["after"]["rows"] == scenario["before"]["rows"]
    assert scenario["after"]["files"] == [[_DATA, "PARQUET", 2]]


@of("upgraded")
def test_rows_of_an_upgraded_table_get_their_ids_with_the_merge(scenario: Seen) -> None:
    """They had none; ids are then unique, and sequence numbers are those of the rows' files."""
    numbers = {0: 1, 2: 1, 3: 1, 4: 1, 5: 2, 7: 2, 8: 2, 9: 2}
    assert scenario["before"]["rows"] == [[None, None, n, str(n)] for n in numbers]
    assert scenario["after"]["files"] == [[_DATA, "PARQUET", 1]]
    rows = scenario["after"]["rows"]
    assert [row[0] for row in rows] == list(range(8))
    assert {row[2]: row[1] for row in rows} == numbers
    assert scenario["after"]["next_row_id"] == 8


@of("upgraded")
def test_an_upgraded_and_merged_table_goes_on(scenario: Seen) -> None:
    """A deletion vector on the merged file is applied by the next merge."""
    assert [_DELETES, "PUFFIN", 1] in scenario["later"]["files"]
    assert scenario["last"]["rows"] == scenario["later"]["rows"]
    assert scenario["last"]["files"] == [[_DATA, "PARQUET", 1]]


@of("upgraded_and_written")
def test_position_deletes_from_before_an_upgrade_go_with_the_vectors(scenario: Seen) -> None:
    """Rows have the ids of the first commit after the upgrade, and keep them."""
    kinds = [kind for _, kind, _ in scenario["before"]["files"]]
    assert kinds == ["PARQUET", "PARQUET", "PUFFIN"]
    assert all(row[0] is not None for row in scenario["before"]["rows"])
    assert scenario["after"]["rows"] == scenario["before"]["rows"]
    assert scenario["after"]["files"] == [[_DATA, "PARQUET", 1]]


@of("ordered")
def test_sorted_rows_keep_their_lineage(scenario: Seen) -> None:
    """The rows change their order in the file, and not their ids."""
    assert scenario["stored"] == [4, 3, 2, 1]
    assert scenario["after"]["rows"] == scenario["before"]["rows"]


@of("continued")
def test_iceberg_works_on_with_a_merged_table(scenario: Seen) -> None:
    """It deletes, updates, appends and rewrites; rows that it leaves alone keep their lineage."""
    merged = {row[2]: row for row in scenario["merged"]["rows"]}
    changed = {row[2]: row for row in scenario["changed"]["rows"]}
    assert changed.keys() == merged.keys() - {4} | {10}
    assert {n: changed[n] for n in changed if n not in (5, 10)} == {
        n: merged[n] for n in merged if n not in (4, 5)
    }
    # An update keeps the row's id, and has the sequence number of its snapshot.
    assert changed[5] == [merged[5][0], 5, 5, "five"]
    assert scenario["rewritten"]["rows"] == scenario["changed"]["rows"]


def identities(seen: Seen) -> list[list[Any]]:
    """The rows without their lineage, in the order of their first column."""
    return sorted((row[2:] for row in seen["rows"]), key=lambda row: row[0])


OTHERS = ("hive", "copied", "void", "clustered", "branched", "positions")


@pytest.mark.parametrize("scenario", OTHERS, indirect=True)
def test_tables_of_others_have_the_same_rows_after_a_merge(scenario: Seen) -> None:
    """Row by row, with the lineage in format 3; deletes are gone, and files are fewer."""
    assert len(scenario["before"]["rows"]) > 5 or "refs" in scenario
    assert scenario["after"]["rows"] == scenario["before"]["rows"]
    kinds = [kind for kind, _, _ in scenario["after"]["files"]]
    assert kinds == [_DATA]
    (after,) = (count for _, _, count in scenario["after"]["files"])
    assert after < sum(count for _, _, count in scenario["before"]["files"])


@of("hive")
def test_files_of_hive_get_ids_and_their_partitions_column(scenario: Seen) -> None:
    """One partition as it was, the other one with deletes and changed names."""
    assert identities(scenario["half"]) == identities(scenario["whole"])
    assert identities(scenario["whole"])[3] == [
        3, ["3", 3], [3, None], "2020-01-04 00:00:00", "2020-01-02"
    ]  # fmt: skip
    assert len(scenario["how"]) > 1
    assert all("by Arrow" in how for how in scenario["how"])
    assert {row[0] for row in identities(scenario["after"])} == set(range(20)) - {1, 7, 8}


@of("doubles")
def test_partitions_of_doubles_keep_their_values(scenario: Seen) -> None:
    """After the manifests were rewritten, and after each partition's files were merged."""
    assert scenario["rewritten"] == 2
    assert scenario["upkept"]["rows"] == scenario["before"]["rows"]
    assert scenario["after"]["rows"] == scenario["before"]["rows"]
    assert len(scenario["after"]["files"]) == 1
    assert scenario["after"]["files"][0][2] == 3
    assert scenario["equal"] == [0, 3]


@of("far")
def test_partitions_of_days_after_9999_are_merged(scenario: Seen) -> None:
    """Each becomes one file; the snapshot's summary names the day 10000-01-01 by its number."""
    assert [row[:2] for row in scenario["before"]] == [
        [0, "9999-12-31"], [1, "+10000-01-01"], [2, "9999-12-31"], [3, "+10000-01-01"],
    ]  # fmt: skip
    assert scenario["after"][:4] == scenario["before"]
    assert scenario["files"] == 2
    first, second = scenario["summaries"]
    assert first is None
    assert "added-data-files=1" in second
    assert "deleted-data-files=2" in second


@of("clustered")
def test_sort_orders_of_others_are_kept(scenario: Seen) -> None:
    """What z-order left is sorted as the table is from now on."""
    assert scenario["stored"] == sorted(scenario["stored"], key=lambda row: (-row[0], row[1]))


@of("branched")
def test_branches_and_tags_outlive_the_upkeep(scenario: Seen) -> None:
    """Snapshots were expired and orphans removed, and what refs need is there."""
    before, after = scenario["refs"]
    assert before == {"first": [[1, "a"], [2, "b"]], "side": [[2, "b"], [3, "side"]]}
    assert after == before
    assert scenario["kept"]["rows"] == scenario["before"]["rows"]
    assert scenario["expired"] >= 2


@of("positions")
def test_position_deletes_are_applied_and_removed(scenario: Seen) -> None:
    """Those of the other partitions stay until their files are merged."""
    deletes = [count for kind, _, count in scenario["before"]["files"] if kind == _DELETES]
    kept = [count for kind, _, count in scenario["half"]["files"] if kind == _DELETES]
    assert 0 < sum(kept) < sum(deletes)
    assert scenario["half"]["rows"] == scenario["before"]["rows"]
    texts = {row[2]: tuple(row[3:]) for row in scenario["after"]["rows"]}
    gone, new, met = {3, 4, 24, 27, 5, 7, 8, 28, 9}, {6, 26}, {17, 25, 33}
    expected = {n: ("odd" if n % 2 else "even", str(n)) for n in range(40) if n not in gone}
    expected |= dict.fromkeys(new, ("even", "new")) | dict.fromkeys(met, ("moved", "met"))
    assert texts == expected | {41: ("odd", "added")}


@of("raced")
@pytest.mark.parametrize("version", ["2", "3"])
def test_a_delete_of_iceberg_before_the_commit_is_kept(scenario: Seen, version: str) -> None:
    """The merge of the deleted rows' partition is dropped, the other one is committed."""
    seen = scenario[version]
    assert (seen["committed"], len(seen["conflicts"])) == (1, 1)
    expected = sorted(
        [[n, "a" if n < 3 else "b"] for n in (0, 0, 2, 2, 3, 3, 4, 4, 5, 5)] + [[9, "b"]]
    )
    assert sorted(row[2:] for row in seen["raced"]["rows"]) == expected
    assert seen["after"]["rows"] == seen["raced"]["rows"]
    assert seen["after"]["files"] == [[_DATA, "PARQUET", 2]]


@of("manifests")
def test_merged_manifests_are_read_and_written_on_by_iceberg(scenario: Seen) -> None:
    """Row by row with the lineage; deletes hold, and Iceberg's own merge of manifests works."""
    before, after = scenario["before"], scenario["after"]
    assert (after["rows"], after["files"]) == (before["rows"], before["files"])
    # The list reserves ids for the ten rows of the merged manifest, as Java's does.
    assert after["next_row_id"] == before["next_row_id"] + 10
    assert sorted(row[2] for row in after["rows"]) == [0, 1, 2, 4, 5, 7, 8, 9]
    assert sum(count for _, count in scenario["counts"][0]) == scenario["merged"][0] > 6
    assert scenario["counts"][1] == [[_DATA, 1], [_DELETES, 1]]
    assert scenario["merged"][2] == 2
    assert scenario["summary"] == [["replace", str(scenario["merged"][1])]]
    ids = [row[2] for row in scenario["again"]["rows"]]
    assert sorted(ids) == [1, 2, 4, 5, 7, 8, 9, 10]
    known = {row[2]: row[:2] for row in before["rows"]}
    assert all(row[:2] == known[row[2]] for row in scenario["again"]["rows"] if row[2] in known)


@pytest.mark.proof
@of("random_tables")
def test_random_tables_keep_all_rows_and_their_lineage(scenario: Seen) -> None:
    """Control: a copy of all rows, which keeps their values alone."""
    print(scenario["happened"])
    assert scenario["problems"] == {}
    assert scenario["tables"] == _TABLES
    happened = scenario["happened"]
    assert happened["merge"] >= _TABLES
    if _FULL:
        assert happened.keys() >= {"equality deletes", "meanwhile", "upgrade", "decode"}
    assert any("became" in problem for problem in scenario["control"])


@of("scanned")
def test_event_logs_say_what_scans_compare_and_read(scenario: Seen) -> None:
    """By the bounds of three files; the partition's column, which all rows have, and one file."""
    small, second, third = scenario["sizes"]
    assert len({small, second, third}) >= 2
    one, two, three, again = scenario["scans"]
    assert (one["filter"], one["columns"]) == ("id = 11", ["id"])
    assert (two["columns"], two["filter"].count("it's e")) == (["id", "part", "text"], 1)
    assert three["columns"] == ["id", "text"]
    assert [(scan["files"], scan["skipped"]) for scan in scenario["scans"]] == [
        (1, 2), (1, 2), (2, 1), (1, 0)
    ]  # fmt: skip
    assert {one["bytes"], two["bytes"]} <= {small, second, third}
    assert [again["bytes"]] == scenario["merged"]
    assert scenario["suggested"] == "id, text"
