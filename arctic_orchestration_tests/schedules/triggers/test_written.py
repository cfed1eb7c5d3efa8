"""Triggers as they are written: Python, YAML and JSON are one trigger, and back."""

import json
from datetime import timedelta
from typing import Any

import pytest
import yaml

from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.triggers import KINDS, Trigger, on

PARTITIONS = {"partitions": {"asset": "a"}}

# What stands in YAML, the same in Python, and the form if it is another than what stands there.
WRITTEN: list[tuple[str, Trigger, dict[str, Any] | None]] = [
    ("cron: {expression: 0 4 * * *}", on.cron("0 4 * * *"), None),
    ("partitions: {asset: a, count: 3}", on.partitions("a", count=3), None),
    ("data: {asset: a, size: 100GB}", on.data("a", "100GB"), None),
    (
        "data: {asset: a, size: 1024MiB, max_wait: 240m}",
        on.data("a", "1GiB", max_wait=timedelta(hours=4)),
        {"data": {"asset": "a", "size": "1GiB", "max_wait": "4h"}},
    ),
    ("quiet: {asset: a, duration: 5m}", on.quiet("a", "5m"), None),
    (
        "quiet: {asset: a, duration: 90s, max_wait: 1h}",
        on.quiet("a", timedelta(seconds=90), max_wait="1h"),
        {"quiet": {"asset": "a", "duration": "1m30s", "max_wait": "1h"}},
    ),
    ("run: {job: j, status: [failure]}", on.run("j", status="failure"), None),
    ("elapsed: {duration: 4h}", on.elapsed("4h"), None),
    (
        "elapsed: {duration: 4h, since: last_launch}",
        on.elapsed(timedelta(hours=4), since="last_launch"),
        {"elapsed": {"duration": "4h"}},
    ),
    (
        "elapsed: {duration: 4h, since: {partitions: {asset: a, where: '2*'}}}",
        on.elapsed("4h", since=on.partitions("a", where="2*")),
        None,
    ),
    (
        "elapsed: {duration: 4h, since: {data: {asset: a, size: 1KB}}}",
        on.elapsed("4h", since=on.data("a", "1KB")),
        None,
    ),
    (
        "elapsed: {duration: 4h, since: {run: {job: j}}}",
        on.elapsed("4h", since=on.run("j")),
        None,
    ),
    (
        "partitions: {asset: a, count: all, checks: passed, late: {collect: 60m}}",
        on.partitions("a", count="all", checks="passed", late="collect: 1h"),
        {"partitions": {"asset": "a", "count": "all", "checks": "passed", "late": "collect:1h"}},
    ),
    (
        "partitions: {asset: a, complete: true, backfill: ignore, mapping: {dimension: date}}",
        on.partitions("a", complete=True, backfill="ignore", mapping={"dimension": "date"}),
        None,
    ),
    ("partition_end: {after: 6h}", on.partition_end("6h"), None),
    (
        "cron: {expression: 0 2 * * *, partition: last_ended, offset: -2}",
        on.cron("0 2 * * *", partition="last_ended", offset=-2),
        None,
    ),
    (
        "cron: {expression: 0 2 * * *, partition: [emea, amer]}",
        on.cron("0 2 * * *", partition=["emea", "amer"]),
        None,
    ),
    ("check: {asset: a}", on.check("a"), None),
    ("check: {asset: a, name: c, count: 2}", on.check("a", "c", count=2), None),
    (
        "check: {asset: a, status: failed, severity: error}",
        on.check("a", status="failed", severity="error"),
        None,
    ),
    ("freshness: {asset: a, state: [warn, fail]}", on.freshness("a", state=["warn", "fail"]), None),
    (
        "freshness: {asset: a, state: fail}",
        on.freshness("a", state="fail"),
        {"freshness": {"asset": "a", "state": ["fail"]}},
    ),
    (
        "any_of: [{partitions: {asset: a}}, {elapsed: {duration: 4h}}]",
        on.partitions("a") | on.elapsed("4h"),
        None,
    ),
    (
        "all_of: [{partitions: {asset: a}}, {partitions: {asset: b}}]",
        on.partitions("a") & on.partitions("b"),
        None,
    ),
    (
        "all_of: {of: [{partitions: {asset: a}}, {partitions: {asset: a}}]}",
        on.all_of(on.partitions("a"), on.partitions("a")),
        {"all_of": [PARTITIONS, PARTITIONS]},
    ),
    (
        "all_of: {of: [{partitions: {asset: a}}, {quiet: {asset: b, duration: 5m}}], within: 1h}",
        on.all_of(on.partitions("a"), on.quiet("b", "5m"), within="1h"),
        None,
    ),
    (
        "all_of: {of: [{partitions: {asset: a}}, {any_of: [{run: {job: j}}]}], wait: 1h}",
        on.all_of(on.partitions("a"), on.any_of(on.run("j")), wait=timedelta(hours=1)),
        None,
    ),
]
#: not for a schedule with partitions, unlike those above
UNPARTITIONED: list[tuple[str, Trigger]] = [
    (
        "then: [{cron: {expression: 0 4 * * *}}, "
        "{partitions: {asset: a, metadata: {source: api}}}]",
        on.then(on.cron("0 4 * * *"), on.partitions("a", metadata={"source": "api"})),
    ),
    ("requests: {sensor: s}", on.requests("s")),
    ("requests: {sensor: s, job: j}", on.requests("s", job="j")),
]


@pytest.mark.parametrize(("text", "trigger", "form"), WRITTEN)
def test_a_trigger_is_one_in_every_form(
    text: str, trigger: Trigger, form: dict[str, Any] | None
) -> None:
    """YAML gives the one of Python; its own form is what stood there, and is read back."""

    def read(written: object) -> Schedule:
        form = {"name": "s", "target": "made", "trigger": written, "partitions": partitions}
        return Schedule.parse(form)

    # Those of the clock and of all partitions need partitions of the target, and these cannot.
    partitions = "none" if trigger.kind in ("elapsed", "freshness") else "each"

    loaded = yaml.safe_load(text)
    schedule = read(loaded)
    assert schedule.trigger == trigger
    assert trigger.to_form() == (loaded if form is None else form)
    for again in (
        trigger.to_form(),
        yaml.safe_load(yaml.safe_dump(trigger.to_form())),
        json.loads(json.dumps(schedule.to_form()))["trigger"],
        trigger,
    ):
        assert read(again).trigger == trigger


def test_each_trigger_is_written_here() -> None:
    """One that is registered has a line above."""
    written = [*(trigger for _, trigger, _ in WRITTEN), *(trigger for _, trigger in UNPARTITIONED)]
    assert {trigger.kind for trigger in written} == set(KINDS)


@pytest.mark.parametrize(("text", "trigger"), UNPARTITIONED)
def test_one_without_partitions_is_one_in_every_form(text: str, trigger: Trigger) -> None:
    """As the others, in a schedule without partitions."""
    loaded = yaml.safe_load(text)
    assert trigger.to_form() == loaded
    form = {"name": "s", "target": "made", "trigger": loaded}
    schedule = Schedule.parse(form)
    assert schedule.trigger == trigger
    assert Schedule.parse(json.loads(json.dumps(schedule.to_form()))) == schedule
