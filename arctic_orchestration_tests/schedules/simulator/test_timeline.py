"""Timelines: what lines may say, and that each problem of a file is named."""

import json
from datetime import timedelta
from pathlib import Path

import pytest

from arctic_orchestration.errors import InvalidDefinition
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.simulator import Timeline, read_timeline, simulate
from arctic_orchestration.schedules.triggers import on

AT = '"at": "2026-01-01T00:00:00Z"'
SCHEDULES = [Schedule(name="s", target="s", trigger={"partitions": {"asset": "a"}})]
SPEC = '{"target": {"job": "j"}, "trigger": {"partitions": {"asset": "a"}}}'
NAMED = f'{{"name": "s", {SPEC[1:]}'


@pytest.mark.parametrize(
    "line",
    [
        f'{{{AT}, "event": "partition", "asset": "raw/flights", "partition": "p", "bytes": 1}}',
        f'{{{AT}, "event": "partition", "asset": "a", "rows": 5, "metadata": {{"path": "/x"}}}}',
        f'{{{AT}, "event": "run", "job": "rollup", "status": "failure", "run_id": "r1"}}',
        f'{{{AT}, "event": "run", "assets": ["a"], "status": "started", "location": "other"}}',
        f'{{{AT}, "event": "partition", "asset": "a", "data_version": "1", "backfill": "b"}}',
        f'{{{AT}, "event": "partition", "asset": "a", "run_id": "r", "checks": ["c"]}}',
        f'{{{AT}, "event": "check", "asset": "a", "check": "c", "partition": "p"}}',
        f'{{{AT}, "event": "check", "asset": "a", "check": "c", "passed": false, '
        '"severity": "warn", "blocking": true}',
        f'{{{AT}, "event": "freshness", "asset": "a", "state": "fail"}}',
        f'{{{AT}, "event": "request", "sensor": "files", "job": "rollup", "run_key": "k", '
        '"partition": "p", "tags": {"file": "a"}}',
        f'{{{AT}, "do": "suspend", "schedule": "s"}}',
        f'{{{AT}, "do": "resume", "schedule": "s"}}',
        f'{{{AT}, "do": "delete", "schedule": "s"}}',
        f'{{{AT}, "do": "update", "schedule": "s", "schedule_spec": {SPEC}}}',
        f'{{{AT}, "do": "crash"}}',
        f'{{{AT}, "do": "restart"}}',
        f'{{{AT}, "do": "advance"}}',
        f'{{{AT}, "do": "start_run", "job": "rollup", "run_id": "manual-1"}}',
        f'{{{AT}, "do": "end_run", "schedule": "s", "status": "canceled"}}',
        f'{{{AT}, "do": "end_run", "run_id": "manual-1"}}',
        f'{{{AT}, "do": "load", "probe": "cpu", "value": 0.9}}',
        '{"at": "2026-01-01T01:00:00+01:00", "do": "advance"}',
    ],
)
def test_each_form_of_a_line_is_read(line: str) -> None:
    """All kinds of lines, with the fields that the design names; other zones than UTC, too."""
    timeline = Timeline.parse([line])
    timeline.check_names(SCHEDULES)
    assert timeline.lines[0].at.isoformat() == "2026-01-01T00:00:00+00:00"


@pytest.mark.parametrize(
    ("line", "field", "expected"),
    [
        ("no json", "", "a JSON object"),
        ("[1]", "", "an object"),
        ('{"at": "2026-01-01T00:00:00Z"}', "", "either event or do"),
        (f'{{{AT}, "event": "run", "do": "crash"}}', "", "either event or do"),
        (f'{{{AT}, "event": "rain"}}', ".event", "one of partition, run, check, freshness"),
        (f'{{{AT}, "do": "dance"}}', ".do", "one of suspend"),
        (f'{{{AT}, "do": ["crash"]}}', ".do", "one of suspend"),
        (f'{{{AT}, {AT}, "do": "crash"}}', "", "at stands there twice"),
        ('{"do": "crash"}', ".at", "a value: the field is required"),
        ('{"at": "2026-01-01T00:00:00", "do": "crash"}', ".at", "with its zone"),
        ('{"at": "2026-13-01T00:00:00Z", "do": "crash"}', ".at", "ISO 8601"),
        ('{"at": 1767225600, "do": "crash"}', ".at", "ISO 8601"),
        ('{"at": "0001-01-01T00:00:00Z", "do": "crash"}', ".at", "the years 1970 to 9000"),
        ('{"at": "9998-01-01T00:00:00Z", "do": "crash"}', ".at", "the years 1970 to 9000"),
        (f'{{{AT}, "do": "crash", "now": true}}', ".now", "no such field"),
        (f'{{{AT}, "do": "crash", "place": "x"}}', ".place", "no such field"),
        (f'{{{AT}, "event": "partition"}}', ".asset", "a value: the field is required"),
        (f'{{{AT}, "event": "partition", "asset": ""}}', ".asset", "not empty"),
        (f'{{{AT}, "event": "partition", "asset": "a", "bytes": "9"}}', ".bytes", "number"),
        (f'{{{AT}, "event": "partition", "asset": "a", "bytes": -1}}', ".bytes", "at least 0"),
        (f'{{{AT}, "event": "partition", "asset": "a", "bytes": NaN}}', "", "NaN is no number"),
        (f'{{{AT}, "event": "run", "status": "failure"}}', "", "either job or assets"),
        (f'{{{AT}, "event": "run", "job": "j", "status": "happy"}}', ".status", "'success'"),
        (f'{{{AT}, "event": "check", "asset": "a"}}', ".check", "a value: the field is required"),
        (f'{{{AT}, "event": "check", "asset": "a", "check": "c", "passed": 1}}', ".passed", "true"),
        (f'{{{AT}, "event": "freshness", "asset": "a", "state": "PASS"}}', ".state", "'pass'"),
        (f'{{{AT}, "do": "suspend"}}', ".schedule", "a value: the field is required"),
        (f'{{{AT}, "do": "update", "schedule": "s"}}', ".schedule_spec", "a value"),
        (
            f'{{{AT}, "do": "update", "schedule": "s", "schedule_spec": {{"target": "j"}}}}',
            ".schedule_spec.trigger",
            "a value: the field is required",
        ),
        (
            f'{{{AT}, "do": "update", "schedule": "t", "schedule_spec": {NAMED}}}',
            ".schedule_spec.name",
            "t, or no name",
        ),
        (f'{{{AT}, "do": "update", "schedule": "s", "schedule_spec": 5}}', ".schedule_spec", "map"),
        (f'{{{AT}, "do": "deploy", "file": "none.yaml"}}', ".file", "a file of schedules"),
        (f'{{{AT}, "do": "end_run"}}', "", "either schedule or run_id"),
        (f'{{{AT}, "do": "end_run", "run_id": "r", "status": "started"}}', ".status", "'success'"),
        (f'{{{AT}, "do": "load", "value": "high"}}', ".value", "number"),
    ],
)
def test_a_line_that_cannot_be_used_is_named_with_field_and_expectation(
    line: str, field: str, expected: str
) -> None:
    """The line's number in the file, the field, and what would have been accepted."""
    with pytest.raises(InvalidDefinition) as caught:
        Timeline.parse(["", line], name="t.jsonl")
    (problem,) = caught.value.problems
    assert problem.field == f"t.jsonl:2{field}"
    assert expected in problem.expected


@pytest.mark.parametrize("at", ["1970-01-01T00:00:00Z", "9000-12-31T23:59:59Z"])
def test_the_longest_timeout_can_be_counted_from_each_moment(at: str) -> None:
    """Also what is kept for a time before the moment."""
    longest = Schedule(
        name="s",
        target="s",
        trigger=on.partitions("a", count=2) | on.cron("0 4 * * *", timezone="America/New_York"),
        timeout="36500d",
        enabled=True,
    )
    timeline = Timeline.parse([f'{{"at": "{at}", "event": "partition", "asset": "a"}}'])
    until = timeline.lines[0].at + timedelta(days=1)
    decisions = list(simulate([longest], timeline, until=until))
    assert [one.decision for one in decisions] == ["deployed", "fired", "launched", "ended"]


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    """As editors of Windows write it; its lines may end as they do there."""
    (tmp_path / "t.jsonl").write_bytes(f'\ufeff{{{AT}, "do": "advance"}}\r\n'.encode())
    assert len(read_timeline(tmp_path / "t.jsonl").lines) == 1


def test_all_problems_of_a_timeline_are_named_at_once() -> None:
    """Three bad lines with four problems among good ones; and one that goes back in time."""
    rows = [
        f'{{{AT}, "do": "crash"}}',
        "nonsense",
        f'{{{AT}, "event": "partition", "bytes": 1.5}}',
        '{"at": "2025-12-31T23:59:59Z", "do": "restart"}',
        f'{{{AT}, "do": "restart"}}',
    ]
    with pytest.raises(InvalidDefinition) as caught:
        Timeline.parse(rows, name="t")
    assert [problem.field for problem in caught.value.problems] == [
        "t:2",
        "t:3.asset",
        "t:3.bytes",
        "t:4.at",
    ]
    assert "not before 2026-01-01T00:00:00Z" in caught.value.problems[-1].expected


def test_a_timeline_without_lines_is_refused() -> None:
    """There would be no moment at which to begin."""
    with pytest.raises(InvalidDefinition, match="at least one line"):
        Timeline.parse(["", "  "])


def test_a_schedule_that_is_not_there_then_is_named_with_its_line() -> None:
    """It was deleted before, or is deployed only later."""
    rows = [
        f'{{{AT}, "do": "suspend", "schedule": "s"}}',
        f'{{{AT}, "do": "delete", "schedule": "s"}}',
        f'{{{AT}, "do": "resume", "schedule": "s"}}',
    ]
    with pytest.raises(InvalidDefinition) as caught:
        Timeline.parse(rows, name="t").check_names(SCHEDULES)
    assert [problem.field for problem in caught.value.problems] == ["t:3.schedule"]


def test_a_deployed_file_is_read_beside_the_timeline_and_its_problems_are_named(
    tmp_path: Path,
) -> None:
    """The file's own fields, after the line that deploys it."""
    spec = json.loads(SPEC)
    good, bad = {"name": "new", **spec}, {"name": "bad name", **spec}
    (tmp_path / "good.yaml").write_text(json.dumps({"schedules": [good]}))
    (tmp_path / "bad.yaml").write_text(json.dumps({"schedules": [good, bad]}))
    (tmp_path / "t.jsonl").write_text(
        f'{{{AT}, "do": "deploy", "file": "good.yaml"}}\n'
        f'{{{AT}, "do": "suspend", "schedule": "new"}}\n'
    )
    read_timeline(tmp_path / "t.jsonl").check_names(SCHEDULES)
    (tmp_path / "t.jsonl").write_text(f'{{{AT}, "do": "deploy", "file": "bad.yaml"}}\n')
    with pytest.raises(InvalidDefinition) as caught:
        read_timeline(tmp_path / "t.jsonl")
    assert caught.value.field == "t.jsonl:1.file bad.yaml: schedules[1].name"
