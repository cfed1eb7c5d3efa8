"""Rules whose ``match`` can select no run."""

from typing import Any

import pytest

from arctic_orchestration.run_queue.rules import Rules, RunFacts
from arctic_orchestration.run_queue.unmatched_rules import shadowed, unmatched

KNOWN = [
    RunFacts(job="load_crm"),
    RunFacts(job="marts", assets=("marts/orders", "marts/refunds")),
    RunFacts(job="__ASSET_JOB", assets=("marts/orders", "marts/refunds", "raw/events")),
]


@pytest.mark.parametrize(
    ("match", "fits"),
    [
        ({"job": "load_*"}, True),
        ({"job": "lod_*"}, False),
        ({"job": "Load_crm"}, False),
        ({"asset": "raw/*"}, True),
        ({"asset": "rw/*"}, False),
        ({"job": "load_crm", "asset": "raw/events"}, False),
        ({"job": "marts", "asset": "*/orders"}, True),
        ([{"job": "lod_*"}, {"asset": "raw/events"}], True),
        # Jobs that Dagster makes for the targets of its schedules and sensors.
        ({"job": "__anonymous_asset_job_*"}, True),
        # What only a run has.
        ({"tags": {"team": "x"}}, True),
        ({"location": "elsewhere"}, True),
        ({"job": "lod_*", "tags": {"team": "x"}}, False),
        ({"job": "lod_*", "location": "elsewhere"}, False),
    ],
)
def test_a_rule_that_fits_no_job_and_no_asset_is_found(match: Any, fits: bool) -> None:
    """Of each kind; one without a match is for runs that name it."""
    named = {"limit": 2}
    rules = Rules.parse(
        {
            "groups": {"few": {"limit": 1, "match": match}, "named": named},
            "windows": {"day": {"start": "08:00", "end": "20:00", "match": match}},
            "queues": {"low": {"match": match}},
        }
    )
    found = [("groups", "few"), ("windows", "day"), ("queues", "low")]
    assert list(unmatched(rules, KNOWN)) == ([] if fits else found)


@pytest.mark.parametrize(
    ("first", "second", "hidden"),
    [
        ({"job": "*"}, {"tags": {"dagster/backfill": "*"}}, True),
        ({"job": "*"}, [{"job": "a"}, {"asset": "x"}], True),
        ({"job": "a"}, [{"job": "a"}, {"asset": "x"}], False),
        ([{"job": "a"}, {"asset": "*"}], [{"job": "a"}, {"asset": "x"}], True),
        ({"job": "a"}, {"job": "a", "tags": {"team": "x"}}, True),
        ({"job": "a", "tags": {"team": "x"}}, {"job": "a"}, False),
        ({"tags": {"team": "*"}}, {"tags": {"team": "x", "tier": "1"}}, True),
        ({"tags": {"team": "y"}}, {"tags": {"team": "x"}}, False),
        # A run of a job of ops makes no asset.
        ({"asset": "*"}, {"job": "a"}, False),
        # Perhaps, which is not certain.
        ({"job": "load_*"}, {"job": "load_crm"}, False),
        ({"location": "*"}, {"job": "a"}, True),
    ],
)
def test_a_queue_whose_runs_are_all_in_an_earlier_one_is_found(
    first: Any, second: Any, hidden: bool
) -> None:
    """Earlier is the higher level; of equal ones, the first by name."""
    for levels, names in (((2, 1), ("z", "a")), ((1, 1), ("a", "z"))):
        forms = zip(names, levels, (first, second), strict=True)
        queues = {name: {"level": level, "match": match} for name, level, match in forms}
        found = list(shadowed(Rules.parse({"queues": queues})))
        assert found == ([(names[1], names[0])] if hidden else [])
