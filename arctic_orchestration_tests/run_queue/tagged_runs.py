"""Runs that get the tags of rules."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from arctic_orchestration.run_queue.rules import Rules, RunFacts
from arctic_orchestration.run_queue.tags import (
    standing_of,
    tags_for,
)

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)


RULES = Rules.parse(
    {
        "groups": {
            "warehouse": {"limit": 3, "match": [{"job": "load_*"}, {"asset": "marts/*"}]},
            "refunds": {"limit_per_program": 1, "match": {"tags": {"team": "finance"}}},
            "named": {"limit": 0},
        },
        "windows": {
            "nightly": {"start": "22:00", "end": "06:00", "timezone": "Europe/Berlin",
                        "match": {"job": "bill"}},
            "weekend": {"start": "00:00", "end": "24:00", "days": ["sat", "sun"]},
        },
        "rates": {"api": {"limit": 10, "per": "1m", "match": {"tags": {"source": "crm"}}}},
        "intervals": {"calm": {"duration": "10m", "match": {"job": "rollup"}}},
        "queues": {
            "aboard": {"level": 2, "share": 4, "match": {"tags": {"tier": "1"}}},
            "backfills": {"match": {"tags": {"dagster/backfill": "*"}}},
            "slow": {"level": -3},
        },
        "seconds_per_level": 600,
    }
)  # fmt: skip


def run_of(job: str = "adhoc", *asset_tags: dict[str, str], **given: Any) -> RunFacts:
    return RunFacts(job=job, location=given.pop("location", "lake"), asset_tags=asset_tags, **given)


def tagged(run: RunFacts, rules: Rules = RULES, now: datetime = NOON) -> RunFacts:
    """The run with the tags that it is submitted with."""
    return replace(run, tags={**run.tags, **tags_for(run, standing_of(run, rules), rules, now)})
