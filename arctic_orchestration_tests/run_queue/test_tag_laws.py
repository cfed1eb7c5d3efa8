"""Laws of the tags that runs get."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

from dagster._utils.tags import is_private_system_tag_key, normalize_tags
from hypothesis import given
from hypothesis import strategies as st

from arctic_orchestration.run_queue.rules import Rules, RunFacts
from arctic_orchestration.run_queue.tags import (
    standing_of,
    tags_for,
)
from arctic_orchestration_tests.run_queue.tagged_runs import NOON, RULES, tagged

NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}", fullmatch=True)


VALUES = st.sampled_from(["1", "finance", "crm", "x y", "warehouse,nope", "slow", "7", "-2", ""])


KEYS = st.sampled_from(
    ["team", "source", "tier", "dagster/backfill", "dagster/priority", "arctic/queue",
     "arctic/level", "arctic/group", "arctic/window", "arctic/rate", "arctic/interval",
     "arctic/group.named", "arctic/rate.api", "arctic/window.weekend", "arctic/interval.calm",
     "arctic/program.refunds"]
)  # fmt: skip


TAGS = st.dictionaries(KEYS, VALUES, max_size=6)


RUNS = st.builds(
    RunFacts,
    job=st.sampled_from(["load_a", "bill", "rollup", "adhoc", "__ASSET_JOB"]),
    location=st.sampled_from([None, "lake"]),
    assets=st.sampled_from([(), ("marts/a",), ("raw/b", "marts/a")]),
    tags=TAGS,
    asset_tags=st.lists(TAGS, max_size=2).map(tuple),
)


LATER = st.timedeltas(timedelta(0), timedelta(days=400))


@given(run=RUNS, later=LATER)
def test_a_run_that_has_its_tags_is_given_only_a_new_time(run: RunFacts, later: timedelta) -> None:
    """At the same moment nothing; and it stands under the same rules, without its assets, too."""
    once = tagged(run)
    standing = standing_of(run, RULES)
    for known in (once, replace(once, asset_tags=())):
        again = standing_of(known, RULES)
        assert replace(again, problems=()) == replace(standing, problems=())
        assert tags_for(known, again, RULES, NOON) == {}
        changed = tags_for(known, again, RULES, NOON + later)
        assert changed.keys() <= {".dagster/arctic_queued_at", "dagster/priority"}
        assert bool(changed) is (later >= timedelta(seconds=1))


@given(run=RUNS, names=st.lists(NAMES, min_size=5, max_size=5), data=st.data())
def test_tags_are_such_as_dagster_takes(run: RunFacts, names: list[str], data: Any) -> None:
    """Keys of at most 63 characters a section, and never a key that is Dagster's own."""
    match = {"match": {"job": "*"}}
    rules = Rules.parse(
        {
            "groups": {names[0]: {"limit": 1, "limit_per_program": 1, **match}},
            "windows": {names[1]: {"start": "22:00", "end": "06:00", **match}},
            "rates": {names[2]: {"limit": 1, "per": "1m", **match}},
            "intervals": {names[3]: {"duration": "1m", **match}},
            "queues": {names[4]: match},
        }
    )
    bare = replace(run, tags={}, asset_tags=())
    tags = tags_for(bare, standing_of(bare, rules), rules, NOON)
    assert len(tags) == 9
    assert normalize_tags(dict.fromkeys(tags, "x"), strict=True, allow_private_system_tags=False)
    assert all(isinstance(value, str) for value in tags.values())
    assert [key for key in tags if key.startswith("dagster/")] == ["dagster/priority"]
    assert not any(map(is_private_system_tag_key, tags))
