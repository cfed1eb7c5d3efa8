"""Each constraint in its Python, YAML and JSON forms, and the registry of all of them."""

import json
from datetime import timedelta

import pytest
import yaml
from pydantic import TypeAdapter

from arctic_orchestration.schedules.constraints import KINDS, AnyConstraint, Constraint, only

CONSTRAINTS: TypeAdapter[Constraint] = TypeAdapter(AnyConstraint)

# What stands in a file, written manually, and the same in Python.
WRITTEN: list[tuple[str, Constraint]] = [
    ("concurrency: {limit: 2, group: spark}", only.concurrency(2, group="spark")),
    ("rate: {limit: 10, per: 1h}", only.rate(10, per=timedelta(hours=1))),
    ("rate: {limit: 1, per: 30d, group: g, otherwise: cancel}",
     only.rate(1, per="30d", group="g", otherwise="cancel")),
    ('window: {start: "22:00", end: "06:00"}', only.window("22:00", "06:00")),
    ('window: {start: "22:00", end: "06:00", timezone: America/New_York, days: [fri, sat]}',
     only.window("22:00", "06:00", timezone="America/New_York", days=["sat", "fri"])),
    ('window: {start: "00:00", end: "24:00", days: [sun], otherwise: cancel}',
     only.window("00:00", "24:00", days="sun", otherwise="cancel")),
    ("delay: {duration: 1h30m}", only.delay(timedelta(minutes=90))),
    ("minimum_interval: {duration: 5m}", only.minimum_interval(timedelta(minutes=5))),
    ("minimum_interval: {duration: 0s, statuses: [success, failure]}",
     only.minimum_interval("0s", statuses=("failure", "success"))),
    ("load: {below: 0.8}", only.load(below=0.8, probe="runs")),
    ("load: {below: 1.0, probe: spark}", only.load(below=1, probe="spark")),
    ("fresh: {parents: {raw/flights: 24.0, ingest: 0.5}}",
     only.fresh({"raw/flights": 24, "ingest": 0.5})),
    ("fresh: {parents: {a: 1.0}, recheck: 30s}", only.fresh({"a": 1}, recheck="30s")),
    ("checks_passed: {}", only.checks_passed()),
    ("checks_passed: {assets: [raw/a], checks: [c, d], recheck: 30s, otherwise: cancel}",
     only.checks_passed("raw/a", ["c", "d"], recheck="30s", otherwise="cancel")),
    ("idle: {}", only.idle()),
    ("idle: {assets: [raw/a], jobs: [b], otherwise: cancel}",
     only.idle(["raw/a"], jobs="b", otherwise="cancel")),
]  # fmt: skip


@pytest.mark.parametrize(("text", "constraint"), WRITTEN)
def test_a_form_is_what_people_write_and_is_read_back(text: str, constraint: Constraint) -> None:
    """Only fields that differ from their defaults, in every form the same constraint."""
    form = CONSTRAINTS.dump_python(constraint)
    assert form == yaml.safe_load(text)
    for again in (form, json.loads(json.dumps(form)), yaml.safe_load(yaml.safe_dump(form))):
        assert CONSTRAINTS.validate_python(again) == constraint


def test_a_single_day_or_status_may_stand_without_a_list() -> None:
    """And ``all`` is every day."""
    for text, constraint in (
        ('window: {start: "01:00", end: "02:00", days: mon}',
         only.window("01:00", "02:00", days=["mon"])),
        ('window: {start: "01:00", end: "02:00", days: all}', only.window("01:00", "02:00")),
        ("minimum_interval: {duration: 5m, statuses: failure}",
         only.minimum_interval("5m", statuses=["failure"])),
    ):  # fmt: skip
        assert CONSTRAINTS.validate_python(yaml.safe_load(text)) == constraint


def test_every_constraint_of_the_design_is_registered_and_written_above() -> None:
    """Section 4.2 of the design has seven, and section 4.3 two more."""
    assert set(KINDS) == {
        "concurrency", "rate", "window", "delay", "minimum_interval", "load", "fresh",
        "checks_passed", "idle",
    }  # fmt: skip
    assert {constraint.kind for _, constraint in WRITTEN} == set(KINDS)
    assert all(hasattr(only, kind) for kind in KINDS)
