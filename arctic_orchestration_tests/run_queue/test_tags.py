"""Under which rules a run stands, and the tags that it is given for them."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from arctic_orchestration.errors import InvalidDefinition
from arctic_orchestration.run_queue.rules import Rules, RunFacts
from arctic_orchestration.run_queue.tags import (
    Kind,
    parse_level,
    program_of,
    queued_at_of,
    standing_of,
    tags_for,
)
from arctic_orchestration_tests.run_queue.tagged_runs import NOON, RULES, run_of, tagged

#: of noon: 2026-03-02 is day 20514 since 1970-01-01
NOON_SECONDS = 20_514 * 86_400 + 12 * 3_600
GROUPS_ALONE = Rules.parse({"groups": {"warehouse": {"limit": 3, "match": {"job": "load_*"}}}})


def level(tags: dict[str, str], *asset_tags: dict[str, str]) -> int:
    return standing_of(run_of("adhoc", *asset_tags, tags=tags), RULES).level


# Which rules.


def test_a_run_stands_under_what_matches_it() -> None:
    """Of each kind as many as match; of queues one, and ``default`` when none does."""
    facts = run_of("load_crm", tags={"source": "crm", "team": "finance", "dagster/backfill": "x"})
    standing = standing_of(facts, RULES)
    assert standing.groups == ("refunds", "warehouse")
    assert (standing.windows, standing.rates, standing.intervals) == ((), ("api",), ())
    assert (standing.queue, standing.level) == ("backfills", 0)
    assert standing.problems == ()
    other = standing_of(run_of("rollup"), RULES)
    assert (other.queue, other.intervals, other.groups) == ("default", ("calm",), ())


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize(
    "value", ["{0}", "{0},{1}", "{1}, {0}", " {0} ; {1} ", "{0}\t{1}\n", "{0} {0} ,, {1}"]
)
def test_a_tag_names_rules_in_any_order_and_spacing(kind: Kind, value: str) -> None:
    """As people write lists."""
    form = {"group": {"limit": 1}, "window": {"start": "01:00", "end": "02:00"},
            "rate": {"limit": 1, "per": "1m"}, "interval": {"duration": "1m"}}[kind]  # fmt: skip
    rules = Rules.parse({kind.configured_as: {"a": form, "b-1": form, "c": form}})
    tag = f"arctic/{kind}"
    standing = standing_of(run_of(tags={tag: value.format("a", "b-1")}), rules)
    assert getattr(standing, kind.configured_as) == (("a", "b-1") if "{1}" in value else ("a",))
    assert standing.problems == ()


def test_tags_of_the_job_and_of_several_assets_add_up() -> None:
    """The long form and the short one, and what rules match."""
    facts = run_of(
        "load_orders",
        {"arctic/group": "named"},
        {"arctic/group.refunds": "", "arctic/window": "nightly"},
        {"arctic/rate.api": "anything"},
        tags={"arctic/window": "weekend"},
    )
    standing = standing_of(facts, RULES)
    assert standing.groups == ("named", "refunds", "warehouse")
    assert standing.windows == ("nightly", "weekend")
    assert standing.rates == ("api",)


@pytest.mark.parametrize(
    ("first", "second", "meet"),
    [
        ({"start": "08:00", "end": "10:00"}, {"start": "10:00", "end": "12:00"}, False),
        ({"start": "08:00", "end": "10:00"}, {"start": "09:00", "end": "12:00"}, True),
        ({"days": "mon"}, {"days": ["tue", "sun"]}, False),
        # On Friday, until six on Saturday.
        ({"start": "22:00", "end": "06:00", "days": "fri"}, {"days": "sat"}, True),
        # One hour ahead in winter, two in summer: they meet on one half of the year's days.
        (
            {"start": "08:00", "end": "09:00", "timezone": "Europe/Berlin"},
            {"start": "06:00", "end": "07:00"},
            True,
        ),
        (
            {"start": "08:00", "end": "09:00", "timezone": "Europe/Berlin"},
            {"start": "08:00", "end": "09:00"},
            False,
        ),
    ],
)
def test_windows_of_a_run_that_are_never_open_together_are_a_problem(
    first: dict[str, object], second: dict[str, object], meet: bool
) -> None:
    """Each may be right for other runs, so rules are not refused."""
    day = {"start": "00:00", "end": "24:00"}
    rules = Rules.parse({"windows": {"b": {**day, **first}, "a": {**day, **second}}})
    never = "windows a, b: never open at the same time, so the run never starts"
    for facts in (run_of(tags={"arctic/window": "a, b"}),) * 2:
        assert standing_of(facts, rules).problems == (() if meet else (never,))
    assert standing_of(run_of(tags={"arctic/window": "a"}), rules).problems == ()


@pytest.mark.parametrize("kind", ["group", "window", "rate", "interval", "queue"])
@pytest.mark.parametrize("name", ["", ".few"])
def test_a_tag_that_is_named_as_the_key_of_the_configuration_is_a_problem(
    kind: str, name: str
) -> None:
    """On the run and on its assets."""
    tag = f"arctic/{kind}s{name}"
    problem = f"{tag}: got such a tag, expected arctic/{kind}{name}"
    assert standing_of(run_of(tags={tag: "few"}), RULES).problems == (problem,)
    assert standing_of(run_of("adhoc", {tag: "few"}), RULES).problems == (problem,)


def test_the_queue_that_is_named_has_the_run_whatever_matches() -> None:
    """By its own tag first, then by those of its assets in their order."""
    tier = {"tier": "1"}
    assert standing_of(run_of(tags=tier), RULES).queue == "aboard"
    assert standing_of(run_of(tags={**tier, "arctic/queue": "slow"}), RULES).queue == "slow"
    assert standing_of(run_of(tags={**tier, "arctic/queue": "default"}), RULES).queue == "default"
    assets = ({"arctic/queue": "slow"}, {"arctic/queue": "backfills"})
    assert standing_of(run_of("adhoc", *assets, tags=tier), RULES).queue == "slow"
    own = {**tier, "arctic/queue": "backfills"}
    assert standing_of(run_of("adhoc", *assets, tags=own), RULES).queue == "backfills"


def test_of_several_queues_that_match_the_one_with_the_highest_level_has_the_run() -> None:
    """Then the first by name, however they are written: Dagster hands them on sorted."""
    tags = {"tier": "1", "dagster/backfill": "x"}
    assert standing_of(run_of(tags=tags), RULES).queue == "aboard"
    every = {"match": {"job": "*"}}
    forms = {"a": {**every, "level": -1}, "z": {**every, "level": 1}, "y": {**every, "level": 1}}
    for names in (["a", "z", "y"], ["y", "a", "z"], ["z", "y", "a"]):
        rules = Rules.parse({"queues": {name: forms[name] for name in names}})
        assert standing_of(run_of(), rules).queue == "y"
    # The queue of runs that no other takes stands among them with its level, 0.
    default = Rules.parse({"queues": {"a": {**every, "level": -1}}})
    assert standing_of(run_of(), default).queue == "a"


def test_without_queues_a_run_is_in_none() -> None:
    """Its tag has no effect, and is no problem: it may be another tool's."""
    standing = standing_of(run_of(tags={"arctic/queue": "slow"}), GROUPS_ALONE)
    assert (standing.queue, standing.problems) == (None, ())


@pytest.mark.parametrize("kind", Kind)
def test_a_name_that_no_rule_has_is_a_problem_and_nothing_else(kind: Kind) -> None:
    """The sentence says the tag, the name, and what there is; the known names are followed."""
    known = sorted(RULES.named(kind.configured_as))
    tags = {f"arctic/{kind}": f"{known[0]}, nope", f"arctic/{kind}.of_a_schedule": "x"}
    standing = standing_of(run_of(tags=tags), RULES)
    assert getattr(standing, kind.configured_as) == (known[0],)
    assert standing.problems == (
        f"arctic/{kind}: got 'nope', expected one of the {kind}s of dagster.yaml: "
        f"{', '.join(known)}",
    )


def test_an_unknown_queue_is_a_problem_and_another_one_has_the_run() -> None:
    """That of its assets' tags, then the one that matches."""
    sentence = (
        "arctic/queue: got 'fast', expected one of the queues of dagster.yaml: "
        "aboard, backfills, default, slow"
    )
    standing = standing_of(run_of(tags={"arctic/queue": "fast", "tier": "1"}), RULES)
    assert (standing.queue, standing.problems) == ("aboard", (sentence,))
    assets = ({"arctic/queue": "slow"},)
    standing = standing_of(run_of("adhoc", *assets, tags={"arctic/queue": "fast"}), RULES)
    assert (standing.queue, standing.problems) == ("slow", (sentence,))


def test_of_many_names_a_problem_lists_eight() -> None:
    """A message stays readable; where there are none, it says that."""
    rules = Rules.parse({"groups": {f"g{n}": {"limit": 1} for n in range(9)}})
    (problem,) = standing_of(run_of(tags={"arctic/group": "x"}), rules).problems
    assert problem.endswith("dagster.yaml: g0, g1, g2, g3, g4, g5, g6, g7, ...")
    (problem,) = standing_of(run_of(tags={"arctic/rate": "x"}), rules).problems
    assert problem.endswith("expected one of the rates of dagster.yaml: none")


# Levels.


def test_a_level_is_that_of_its_tag_then_the_priority_then_the_queue() -> None:
    """Of the run itself before that of its assets."""
    everything = {"arctic/level": "7", "dagster/priority": "5", "arctic/queue": "aboard"}
    assert level(everything) == 7
    assert level({"dagster/priority": "5", "arctic/queue": "aboard"}) == 5
    assert level({"arctic/queue": "aboard"}) == 2
    assert level({"arctic/queue": "slow"}) == -3
    assert level({}) == 0
    assert level({"dagster/priority": "5"}, {"arctic/level": "1"}, {"arctic/level": "2"}) == 1
    assert level({}, {"dagster/priority": "4"}) == 4
    assert level({"arctic/level": "0", "dagster/priority": "5"}) == 0


@pytest.mark.parametrize(
    ("text", "found"),
    [("0", 0), ("-4", -4), ("+4", 4), (" 12 ", 12), ("007", 7), ("1000000", 1_000_000),
     ("-1000000", -1_000_000), ("1000001", None), ("-1000001", None), ("1.0", None), ("", None),
     ("high", None), ("1e3", None), ("0x10", None), ("1_000", None), ("٥", None), ("9" * 9, None),
     ("9" * 5000, None), ("--1", None), ("1 2", None)],
)  # fmt: skip
def test_a_level_is_a_whole_number_up_to_a_million(text: str, found: int | None) -> None:
    """What is none is a problem in our tag, and no word in Dagster's."""
    assert parse_level(text) == found
    ours = standing_of(run_of(tags={"arctic/level": text, "arctic/queue": "slow"}), RULES)
    assert ours.level == (-3 if found is None else found)
    expected = "expected a whole number from -1000000 to 1000000"
    problems = () if found is not None else (f"arctic/level: got {text!r}, {expected}",)
    assert ours.problems == problems
    dagsters = standing_of(run_of(tags={"dagster/priority": text, "arctic/queue": "slow"}), RULES)
    assert (dagsters.level, dagsters.problems) == (-3 if found is None else found, ())


def test_a_level_that_is_none_leaves_the_next_word() -> None:
    """Dagster's priority, here."""
    assert level({"arctic/level": "high", "dagster/priority": "5"}) == 5


def test_the_number_by_which_a_run_is_sorted_is_its_level_and_its_age() -> None:
    """Level 2 with 600 s a level, queued at noon."""
    tags = tagged(run_of(tags={"arctic/level": "2"})).tags
    assert tags["dagster/priority"] == str(2 * 600 - NOON_SECONDS)
    assert tags[".dagster/arctic_queued_at"] == "2026-03-02T12:00:00Z"
    assert tags["arctic/level"] == "2"
    assert queued_at_of(tags) == NOON


def test_a_run_that_is_retried_keeps_its_level_and_begins_to_age_again() -> None:
    """Its tags are those of the first run; the number by which that was sorted is no level."""
    first = tagged(run_of(tags={"dagster/priority": "5"}))
    hour = NOON + timedelta(hours=1)
    again = tagged(first, now=hour)
    assert again.tags["arctic/level"] == "5"
    assert again.tags["dagster/priority"] == str(5 * 600 - NOON_SECONDS - 3_600)
    assert again.tags[".dagster/arctic_queued_at"] == "2026-03-02T13:00:00Z"


def test_an_aged_priority_alone_is_no_level() -> None:
    """A run that was retried without its level, whose number is about -1.7 billion."""
    first = tagged(run_of(tags={"tier": "1"}))
    without = {key: value for key, value in first.tags.items() if key != "arctic/level"}
    assert standing_of(run_of(tags=without), RULES).level == 2


def test_a_rate_that_let_a_run_start_does_not_let_its_retry_start() -> None:
    """The tag of the first run says ``granted``."""
    first = tagged(run_of(tags={"source": "crm"}))
    assert first.tags["arctic/rate.api"] == "waiting"
    granted = replace(first, tags={**first.tags, "arctic/rate.api": "granted"})
    assert tagged(granted).tags["arctic/rate.api"] == "waiting"


def test_without_queues_and_seconds_a_level_nothing_ages() -> None:
    """Dagster's priority stays as it was written; seconds a level alone let it age."""
    facts = run_of("load_a", tags={"dagster/priority": "5"})
    assert tags_for(facts, standing_of(facts, GROUPS_ALONE), GROUPS_ALONE, NOON) == {
        "arctic/group.warehouse": "at most 3 at once"
    }
    ages = Rules.parse({"seconds_per_level": 60})
    assert tags_for(facts, standing_of(facts, ages), ages, NOON) == {
        "arctic/level": "5",
        ".dagster/arctic_queued_at": "2026-03-02T12:00:00Z",
        "dagster/priority": str(5 * 60 - NOON_SECONDS),
    }


@pytest.mark.parametrize(
    ("text", "found"),
    [("2026-03-02T12:00:00Z", NOON), ("2026-03-02T13:00:00+01:00", NOON), ("2026-03-02", None),
     ("2026-03-02T12:00:00", None), ("", None), ("soon", None), ("1772452800", None)],
)  # fmt: skip
def test_a_moment_that_is_none_is_not_known(text: str, found: datetime | None) -> None:
    """Also one without a zone; and where there is no tag."""
    assert queued_at_of({".dagster/arctic_queued_at": text}) == found
    assert queued_at_of({}) is None


# The tags themselves.


def test_a_run_is_given_a_tag_for_each_rule_in_words() -> None:
    """What people see in Dagster's UI, and what its daemon limits."""
    tags = {"team": "finance", "source": "crm", "arctic/window": "nightly"}
    facts = run_of("load_a", {"arctic/interval": "calm"}, tags=tags)
    assert tags_for(facts, standing_of(facts, RULES), RULES, NOON) == {
        "arctic/group.refunds": "at most 1 of a program",
        "arctic/program.refunds": "lake: load_a",
        "arctic/group.warehouse": "at most 3 at once",
        "arctic/window.nightly": "22:00-06:00 Europe/Berlin",
        "arctic/interval.calm": "lake: load_a",
        "arctic/rate.api": "waiting",
        "arctic/queue": "default",
        "arctic/level": "0",
        ".dagster/arctic_queued_at": "2026-03-02T12:00:00Z",
        "dagster/priority": str(-NOON_SECONDS),
    }


def test_a_run_under_no_rule_is_given_no_tag() -> None:
    """Where there are no queues; it goes as with Dagster's own class."""
    facts = run_of(tags={"team": "a"})
    assert tags_for(facts, standing_of(facts, GROUPS_ALONE), GROUPS_ALONE, NOON) == {}


@pytest.mark.parametrize(
    ("facts", "program"),
    [
        (RunFacts(job="load"), "load"),
        (RunFacts(job="load", location="lake"), "lake: load"),
        # A job of one's own is the program, also when it makes some of its assets only.
        (RunFacts(job="marts", location="lake", assets=("marts/a",)), "lake: marts"),
        (RunFacts(job="__ASSET_JOB", location="lake", assets=("b", "a/x")), "lake: a/x, b"),
        (
            RunFacts(job="__ASSET_JOB", assets=("c", "b", "a", "d", "e")),
            "a, b, c and 2 more (dbbc47)",
        ),
        # Of a file name that is not UTF-8: a pass over the queue must not end with it.
        (
            RunFacts(job="__ASSET_JOB", assets=("a", "b\udce9", "c", "d\udce9")),
            "a, b\\udce9, c and 1 more (a27c42)",
        ),
        (RunFacts(job="__ASSET_JOB", location="lake"), "lake: __ASSET_JOB"),
    ],
)
def test_a_program_is_a_job_or_assets(facts: RunFacts, program: str) -> None:
    """With the code location, whatever the order of assets."""
    assert program_of(facts) == program
    assert program_of(replace(facts, assets=tuple(reversed(facts.assets)))) == program


def test_a_program_of_long_names_is_short_and_its_own() -> None:
    """Postgres indexes tags, and refuses values above 2,704 bytes: the run would not be queued."""
    names = ["\U00020bb7" * 350 + end for end in "abcd"]
    programs = {program_of(RunFacts(job="__ASSET_JOB", assets=(*names[:2], end))) for end in names}
    assert len(programs) == len(names)
    assert all(len(program.encode()) < 2_500 for program in programs)


@pytest.mark.parametrize(
    "key",
    ["arctic/queue", "arctic/level", ".dagster/arctic_queued_at", "arctic/wait", "dagster/priority",
     "arctic/group", "arctic/group.first", "arctic/program.first", "arctic/rate.api",
     "arctic/window.w", "arctic/interval.i"],
)  # fmt: skip
def test_no_rule_matches_the_tags_that_rules_write(key: str) -> None:
    """It would match once a run is in progress, and not when it is submitted."""
    with pytest.raises(InvalidDefinition, match="it follows from rules"):
        Rules.parse({"groups": {"second": {"limit": 1, "match": {"tags": {key: "*"}}}}})


@pytest.mark.parametrize("key", ["arctic/schedule", "arctic/job", "arctic/queues", "team"])
def test_a_rule_matches_the_tags_that_runs_come_with(key: str) -> None:
    """Those of the schedule that asked for the run are such."""
    rules = Rules.parse({"groups": {"second": {"limit": 1, "match": {"tags": {key: "*"}}}}})
    assert standing_of(run_of("adhoc", tags={key: "x"}), rules).groups == ("second",)


def test_a_problem_of_several_assets_is_reported_once() -> None:
    """Each of them becomes an event on the run."""
    wrong = {"arctic/group": "nope"}
    assert len(standing_of(run_of("adhoc", wrong, dict(wrong)), RULES).problems) == 1


def test_an_aged_priority_goes_when_nothing_ages_any_more() -> None:
    """Queues were taken out of dagster.yaml: a retry would be sorted behind all new runs."""
    first = tagged(run_of("load_a"))
    assert int(first.tags["dagster/priority"]) < -1_000_000_000
    again = tagged(first, GROUPS_ALONE, NOON + timedelta(hours=1))
    assert int(again.tags["dagster/priority"]) > -1_000_000_000


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+05:00", "9999-12-31T23:59:59-05:00"])
def test_a_moment_beyond_the_calendar_is_none(text: str) -> None:
    """Anybody may write the tag; the list of queued runs must not fail for it."""
    assert queued_at_of({".dagster/arctic_queued_at": text}) is None
