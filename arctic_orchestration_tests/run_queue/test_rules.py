"""What is written in ``dagster.yaml`` as rules of the run queue, and what is refused there."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arctic_orchestration.errors import InvalidDefinition
from arctic_orchestration.run_queue.rules import KINDS, Match, Rules, RunFacts
from arctic_orchestration_tests.run_queue.bad_rules import BAD, GOOD, Bad

RUN = RunFacts(
    job="load_orders",
    location="lake",
    assets=("marts/orders", "raw/orders"),
    tags={"team": "finance", "tier": "1"},
)


def is_same(value: object, other: object) -> bool:
    """Equal, of one type, and NaN like NaN."""
    return type(value) is type(other) and (value == other or (value != value and other != other))


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: f"{bad.path}={bad.value!r:.30}")
def test_a_wrong_field_is_named_by_its_path_with_its_value_and_what_was_expected(bad: Bad) -> None:
    """Nothing else is complained of, and the message has all three."""
    with pytest.raises(InvalidDefinition) as refusal:
        Rules.parse(bad.config)
    (problem,) = refusal.value.problems
    assert problem.field == f"run_coordinator.config.{bad.path}"
    assert is_same(problem.value, bad.value)
    assert problem.expected == bad.expected
    message = f"run_coordinator.config.{bad.path}: got {bad.value!r}, expected {bad.expected}"
    assert str(refusal.value) == message


def test_the_table_has_every_field_of_every_kind() -> None:
    """A field that is added later must be written wrongly here, too."""
    assert len(BAD) >= 250
    written = {(kind, field) for bad in BAD for kind in bad.config if kind in KINDS
               and isinstance(bad.config[kind], dict)
               for form in bad.config[kind].values() if isinstance(form, dict)
               for field in form}  # fmt: skip
    for kind, model in KINDS.items():
        for field in model.model_fields:
            assert (kind, field) in written, f"{kind}.{field}"
    matches = {bad.path.rpartition(".")[2] for bad in BAD}
    assert matches >= Match.model_fields.keys()


def test_a_whole_number_beyond_all_floats_is_no_share() -> None:
    """It cannot be turned into a number of the kind that shares are."""
    with pytest.raises(InvalidDefinition) as refusal:
        Rules.parse({"queues": {"low": {"share": 10**400}}})
    (problem,) = refusal.value.problems
    assert problem.field == "run_coordinator.config.queues.low.share"


def test_all_that_is_wrong_is_named_at_once() -> None:
    """Of one rule, of several, and of several kinds; one line each."""
    config = {
        "groups": {"a": {"limit": -1, "limit_per_program": True}, "b": {"limit": 1, "x": 2}},
        "windows": {"nightly": {"start": 1320, "end": "06:00"}, "a b": {}},
        "rates": {"api": {"per": 60}},
        "queues": {"low": {"share": 0, "paused": "yes"}},
        "seconds_per_level": 0,
    }
    with pytest.raises(InvalidDefinition) as refusal:
        Rules.parse(config)
    found = [(problem.field, problem.value) for problem in refusal.value.problems]
    assert found == [
        ("run_coordinator.config.groups.a.limit", -1),
        ("run_coordinator.config.groups.a.limit_per_program", True),
        ("run_coordinator.config.groups.b.x", 2),
        ("run_coordinator.config.windows.nightly.start", 1320),
        ("run_coordinator.config.windows", "a b"),
        ("run_coordinator.config.rates.api.limit", None),
        ("run_coordinator.config.rates.api.per", 60),
        ("run_coordinator.config.queues.low.share", 0),
        ("run_coordinator.config.queues.low.paused", "yes"),
        ("run_coordinator.config.seconds_per_level", 0),
    ]
    assert len(str(refusal.value).splitlines()) == 10


def test_what_is_right_is_read() -> None:
    """Each kind with all its fields; a queue of the name ``default`` is always there."""
    rules = Rules.parse(
        {
            "groups": {"warehouse": {"limit": 0, "limit_per_program": 1}},
            "windows": {"w": {"start": "22:00", "end": "24:00", "timezone": "Europe/Berlin",
                              "days": "sat"}},
            "rates": {"api": {"limit": 1, "per": "30d"}},
            "intervals": {"calm": {"duration": "1ms", "statuses": ["canceled", "success"]}},
            "queues": {"urgent": {"level": -1_000_000, "share": 0.5, "paused": True}},
            "seconds_per_level": 86_400,
        }
    )  # fmt: skip
    assert rules.groups["warehouse"].limit == 0
    assert rules.groups["warehouse"].text == "at most 0 at once, at most 1 of a program"
    assert rules.windows["w"].text == "22:00-24:00 Europe/Berlin sat"
    assert rules.rates["api"].per == timedelta(days=30)
    assert rules.rates["api"].text == "at most 1 starts in 30d"
    assert rules.intervals["calm"].statuses == ("success", "canceled")
    assert rules.intervals["calm"].text == "1ms between runs"
    assert rules.queues["urgent"].text == "level -1000000, share 0.5"
    assert set(rules.queues) == {"urgent", "default"}
    assert (rules.queues["default"].level, rules.queues["default"].share) == (0, 1)
    assert (rules.seconds_per_level, rules.ages) == (86_400, True)


def test_what_a_rule_leaves_out_has_a_default() -> None:
    """A group of both limits, a window in UTC on all days, an interval after successes."""
    rules = Rules.parse({kind: {"a": form} for kind, form in GOOD.items()})
    assert rules.groups["a"].limit_per_program is None
    assert (rules.windows["a"].timezone, len(rules.windows["a"].days)) == ("UTC", 7)
    assert rules.intervals["a"].statuses == ("success",)
    assert rules.queues["a"].paused is False
    assert rules.seconds_per_level == 600


@pytest.mark.parametrize(
    "config",
    [{}, {kind: {} for kind in KINDS}, dict.fromkeys(KINDS), {"seconds_per_level": None},
     {"max_concurrent_runs": 3}],
)  # fmt: skip
def test_no_rules_are_no_rules(config: dict[str, Any]) -> None:
    """Also where a section is there and empty."""
    rules = Rules.parse(config)
    assert rules.are_none
    assert not rules.ages
    assert rules.queues == {}


@pytest.mark.parametrize("kind", KINDS)
def test_one_rule_is_a_rule(kind: str) -> None:
    """Of each kind; and a number of seconds a level alone lets levels age."""
    rules = Rules.parse({kind: {"a": GOOD[kind]}})
    assert not rules.are_none
    assert rules.ages is (kind == "queues")
    seconds = Rules.parse({"seconds_per_level": 1})
    assert (seconds.are_none, seconds.ages, seconds.queues) == (False, True, {})


def test_a_queue_may_be_written_without_anything() -> None:
    """``backfills:`` alone is a queue of level 0 and share 1 that is named in tags."""
    rules = Rules.parse({"queues": {"backfills": None}})
    assert rules.queues["backfills"].share == 1
    assert not rules.queues["backfills"].takes(RUN)


@pytest.mark.parametrize(
    ("match", "taken"),
    [
        ({"job": "load_orders"}, True),
        ({"job": "load_*"}, True),
        ({"job": "load"}, False),
        ({"job": "*"}, True),
        ({"job": "LOAD_*"}, False),
        ({"job": "load_order?"}, True),
        ({"job": "load_order??"}, False),
        ({"job": "load_[a-z]*"}, True),
        ({"job": "load_[!o]*"}, False),
        ({"location": "lake|harbour"}, False),
        ({"location": ".*"}, False),
        ({"location": "lake"}, True),
        ({"location": "l*"}, True),
        ({"location": "harbour"}, False),
        # One of the assets is enough, and * goes over a slash.
        ({"asset": "marts/*"}, True),
        ({"asset": "raw/orders"}, True),
        ({"asset": "marts"}, False),
        ({"asset": "*orders"}, True),
        ({"asset": "marts/refunds"}, False),
        ({"tags": {"team": "finance"}}, True),
        ({"tags": {"team": "*"}}, True),
        ({"tags": {"team": "fin*"}}, True),
        ({"tags": {"owner": "*"}}, False),
        ({"tags": {"team": "finance", "tier": "2"}}, False),
        ({"tags": {"team": "finance", "tier": "[12]"}}, True),
        # Fields of one match are all to hold; of several matches, one.
        ({"job": "load_*", "location": "harbour"}, False),
        ({"job": "load_*", "location": "lake", "asset": "raw/*", "tags": {"tier": "1"}}, True),
        ([{"job": "bill"}, {"location": "lake"}], True),
        ([{"job": "bill"}, {"location": "harbour"}], False),
        ([], False),
    ],
)  # fmt: skip
def test_a_match_takes_the_runs_for_which_all_that_is_written_holds(
    match: Any, taken: bool
) -> None:
    """Patterns are those of file names; in each kind of rule the same."""
    for kind, good in GOOD.items():
        rules = Rules.parse({kind: {"a": {**good, "match": match}}})
        assert rules.named(kind)["a"].takes(RUN) is taken


def test_a_run_of_which_less_is_known_is_taken_by_less() -> None:
    """A run without a code location, assets and tags; an empty location is any location."""
    bare = RunFacts(job="adhoc")
    assert Match.parse({"job": "adhoc"}).takes(bare)
    assert Match.parse({"location": "*"}).takes(bare)
    assert not Match.parse({"location": "?*"}).takes(bare)
    assert not Match.parse({"asset": "*"}).takes(bare)
    assert not Match.parse({"tags": {"team": "*"}}).takes(bare)


@given(pattern=st.text(min_size=1, max_size=12), text=st.text(max_size=12))
def test_any_text_is_a_pattern(pattern: str, text: str) -> None:
    """Nothing that can be written makes a pass fail; a text without signs fits itself alone."""
    run = replace(RUN, location=text, tags={"a": text})
    try:
        match = Match.parse({"location": pattern, "tags": {"a": pattern}})
    except InvalidDefinition:
        assert any(sign == "\0" or "\ud800" <= sign <= "\udfff" for sign in pattern)
        return
    taken = match.takes(run)
    if not set(pattern) & set("*?["):
        assert taken is (pattern == text)


@given(value=st.text(max_size=30))
def test_a_star_takes_every_value_of_a_tag(value: str) -> None:
    """Empty ones and those of several lines, too."""
    assert Match.parse({"tags": {"a": "*"}}).takes(replace(RUN, tags={"a": value}))
