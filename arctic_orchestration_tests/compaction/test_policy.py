"""What a table's properties ask of compaction."""

import re
from datetime import timedelta
from pathlib import Path

import pytest

from arctic_orchestration.compaction.planning.policy import PREFIX, Policy
from arctic_orchestration.errors import InvalidDefinition

MIB = 1024 * 1024


def of(**properties: str) -> Policy:
    """A policy of properties whose names are written with _ for . and -."""
    return Policy.of(written(**properties), "lake.flights")


def written(**properties: str) -> dict[str, str]:
    """``minor__min_files`` is ``arctic.compaction.minor.min-files``."""
    return {
        PREFIX + name.replace("__", ".").replace("_", "-"): value
        for name, value in properties.items()
    }


def problems(properties: dict[str, str]) -> dict[str, str]:
    """What is wrong, by the property."""
    with pytest.raises(InvalidDefinition) as refused:
        Policy.of(properties, "lake.flights")
    found = {}
    for problem in refused.value.problems:
        name, table = problem.field.split(" of ")
        assert table == "lake.flights"
        found[name.removeprefix(PREFIX)] = problem.expected
    return found


@pytest.mark.parametrize(
    "name",
    [
        "arctic.Compaction.enabled", "Arctic.Compaction.Enabled", "arctic_compaction.enabled",
        "arctic.compact.minor.min-files", "arctic.compaction-minor.min-files", "arctic.compaction",
    ],
)  # fmt: skip
def test_a_name_that_is_almost_ours_is_refused(name: str) -> None:
    """Ignored, a table that is not to be compacted would be."""
    assert problems({name: "false"})[name].startswith("a property that is known")


def test_properties_of_others_are_ignored() -> None:
    """Also those whose names are a little like ours."""
    others = {"arctic.append.once": "x", "compaction.enabled": "false", "write.format": "orc"}
    assert Policy.of(others, "lake.flights") == Policy()


def test_a_table_without_properties_has_the_defaults() -> None:
    """And so has one with properties of others only."""
    policy = Policy.of({}, "lake.flights")
    assert policy == Policy() == Policy.of({"owner": "ops"}, "lake.flights")
    assert policy.enabled
    assert policy.queue is None
    assert policy.target_size == 128 * MIB
    assert (policy.fragment_size, policy.done_size) == (16 * MIB, 96 * MIB)
    assert (policy.minor_min_files, policy.minor_interval) == (12, timedelta(hours=1))
    assert policy.commit_interval == timedelta(seconds=60)


def test_every_property_is_read() -> None:
    """Each in the way in which it is written."""
    policy = of(
        enabled="false",
        queue="urgent",
        level="-3",
        target_size="64MiB",
        fragment_size="1MiB",
        done_size="32MiB",
        split_size="1GiB",
        minor__min_files="5",
        minor__interval="10m",
        major__min_files="4",
        major__interval="never",
        major__delete_files="3",
        major__deleted_rows="25%",
        max_task_size="2GiB",
        max_files="50",
        check_interval="30s",
        commit_interval="5s",
        retry_interval="1s",
        attempts="7",
    )
    assert policy == Policy(
        enabled=False,
        queue="urgent",
        level=-3,
        target_size=64 * MIB,
        fragment_size=MIB,
        done_size=32 * MIB,
        split_size=1024 * MIB,
        minor_min_files=5,
        minor_interval=timedelta(minutes=10),
        major_min_files=4,
        major_interval=None,
        major_delete_files=3,
        major_deleted_rows=0.25,
        max_task_size=2048 * MIB,
        max_files=50,
        check_interval=timedelta(seconds=30),
        commit_interval=timedelta(seconds=5),
        retry_interval=timedelta(seconds=1),
        attempts=7,
    )


def test_thresholds_follow_the_target() -> None:
    """An eighth, three quarters, 1.8 and four times of it, unless they are said."""
    policy = of(target_size="80MiB")
    assert policy.fragment_size == 10 * MIB
    assert policy.done_size == 60 * MIB
    assert policy.split_size == 144 * MIB
    assert policy.max_task_size == 320 * MIB


def test_the_target_is_iceberg_s_own_where_ours_is_not_set() -> None:
    """``write.target-file-size-bytes`` is a plain number of bytes."""
    iceberg = {"write.target-file-size-bytes": "268435456"}
    assert Policy.of(iceberg, "lake.flights").target_size == 256 * MIB
    both = {**iceberg, **written(target_size="32MiB")}
    assert Policy.of(both, "lake.flights").target_size == 32 * MIB


def test_a_queue_has_a_name_that_a_database_can_hold() -> None:
    """Postgres refuses it, and the table would not even be registered."""
    assert problems(written(queue="night\0")) == {"queue": "the name of a queue"}


def test_every_wrong_value_is_named_at_once() -> None:
    """With the property, what was found and what was expected."""
    found = problems(
        written(
            enabled="yes",
            level="1001",
            queue=" ",
            target_size="128",
            minor__min_files="1",
            minor__interval="0s",
            major__deleted_rows="0",
            max_files="many",
            attempts="0",
            commit_interval="60",
        )
    )
    assert found == {
        "enabled": "true or false",
        "level": "a whole number, -1000 to 1000",
        "queue": "the name of a queue",
        "target-size": "a size such as 512B, 500KB, 1.5GB or 64MiB",
        "minor.min-files": "a whole number, 2 to 1000000",
        "minor.interval": "a duration longer than 0s, or never",
        "major.deleted-rows": "a share of the rows, more than 0 and at most 1, such as 0.1 or 10%",
        "max-files": "a whole number, 2 to 1000000",
        "attempts": "a whole number, 1 to 100",
        "commit-interval": "a duration such as 90s, 5m, 4h, 1d or 1h30m",
    }


def test_the_message_names_property_table_and_value() -> None:
    """A person reads it where the table is shown."""
    with pytest.raises(
        InvalidDefinition,
        match=re.escape("arctic.compaction.attempts of lake.flights: got '0', expected a whole"),
    ):
        of(attempts="0")


def test_a_property_that_nothing_knows_is_refused() -> None:
    """A slip of the pen would be a default that nobody chose."""
    (expected,) = problems(written(targetsize="1MiB")).values()
    assert "target-size" in expected


@pytest.mark.parametrize("size", ["0B", "1023B"])
def test_a_target_that_no_file_could_have_is_refused(size: str) -> None:
    """The thresholds are fractions of it."""
    assert set(problems(written(target_size=size))) == {"target-size"}


def test_a_target_below_the_row_group_is_refused() -> None:
    """A file has at least one row group; the one that is said is named."""
    groups = {"write.parquet.row-group-size-bytes": str(64 * MIB)}
    expected = "at least 64MiB, which one row group has by write.parquet.row-group-size-bytes"
    assert problems({**groups, **written(target_size="32MiB")}) == {"target-size": expected}
    by_iceberg = {**groups, "write.target-file-size-bytes": str(32 * MIB)}
    assert problems(by_iceberg) == {"write.target-file-size-bytes": expected}
    assert Policy.of({**groups, **written(target_size="64MiB")}, "t").target_size == 64 * MIB


def test_a_row_group_above_the_default_target_is_refused_too() -> None:
    """Nobody wrote the target, and yet it does not fit."""
    groups = {"write.parquet.row-group-size-bytes": str(256 * MIB)}
    with pytest.raises(InvalidDefinition, match="target-size of t: got '128MiB'"):
        Policy.of(groups, "t")


def test_sizes_that_contradict_each_other_are_refused() -> None:
    """A fragment is smaller than a done file, that than the target, and that than a task."""
    assert problems(written(target_size="8MiB", done_size="9MiB")) == {
        "done-size": "at most 8MiB, the target-size"
    }
    # The one that was written is named: done is 3/4 of the target by default.
    assert problems(written(target_size="8MiB", fragment_size="7MiB")) == {
        "fragment-size": "at most 6MiB, the done-size"
    }
    assert problems(written(target_size="8MiB", fragment_size="7MiB", done_size="5MiB")) == {
        "done-size": "at least 7MiB, the fragment-size"
    }
    assert problems(written(target_size="8MiB", split_size="7MiB")) == {
        "split-size": "at least 8MiB, the target-size"
    }
    assert problems(written(target_size="8MiB", max_task_size="7MiB")) == {
        "max-task-size": "at least 8MiB, the target-size"
    }


def test_the_fingerprint_changes_with_what_a_plan_depends_on() -> None:
    """Not with the queue, nor with what happens after planning."""
    assert of().fingerprint == of(queue="urgent", level="2", attempts="9").fingerprint
    different = {of().fingerprint, of(max_files="9").fingerprint, of(enabled="false").fingerprint}
    assert len(different) == 3


def test_the_documentation_lists_every_property() -> None:
    """With no property that is not there."""
    text = (Path(__file__).parents[2] / "docs" / "compaction.md").read_text()
    listed = set(re.findall(r"^\| `arctic\.compaction\.([a-z.-]+)` \|", text, re.MULTILINE))
    (expected,) = problems(written(unknown="1")).values()
    known = set(expected.split("one of ")[1].split(", "))
    assert listed == known


def test_the_documentation_has_the_defaults() -> None:
    """Where the default is a value that could be written."""
    text = (Path(__file__).parents[2] / "docs" / "compaction.md").read_text()
    rows = re.findall(r"^\| `(arctic\.compaction\.[a-z.-]+)` \| `([^`]+)` \|", text, re.MULTILINE)
    assert len(rows) == 18
    assert Policy.of(dict(rows), "t") == Policy()
