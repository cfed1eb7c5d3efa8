"""Each kind of gate: for how many more runs it is open, and what it says."""

import math
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from dagster._utils.tags import TagConcurrencyLimitsCounter

from arctic_orchestration.run_queue.gates import Gates
from arctic_orchestration.run_queue.limits import merged, place_of, shown_limits
from arctic_orchestration.run_queue.pauses import Pausable, Pause
from arctic_orchestration.run_queue.rules import Rules
from arctic_orchestration.run_queue.windows import OpenWindows
from arctic_orchestration_tests.run_queue.queues import NOON, Run, gates, submitted
from arctic_orchestration_tests.run_queue.seen_gates import ALL, API, active, gates_of, shut, strays

FEW = Rules.parse({"groups": {"few": {"limit": 3, **ALL}}})
EACH = Rules.parse({"groups": {"each": {"limit_per_program": 2, **ALL}}})
NIGHT = Rules.parse({"windows": {"night": {"start": "22:00", "end": "06:00", **ALL}}})
DAY = Rules.parse({"windows": {"day": {"start": "06:00", "end": "22:00", **ALL}}})
CALM = Rules.parse({"intervals": {"calm": {"duration": "10m", **ALL}}})
QUEUES = Rules.parse({"queues": {"low": ALL}, "groups": {"few": {"limit": 3, **ALL}}})
EACH_VALUE = {"applyLimitPerUniqueValue": True}


def blocked(of: Gates, run: Run, in_progress: Sequence[Run]) -> bool:
    """Whether Dagster's daemon would hold the run, by its own counter."""
    counter = TagConcurrencyLimitsCounter(merged(of.limits()), list(in_progress))  # type: ignore[arg-type]
    return counter.is_blocked(run)  # type: ignore[arg-type]


# Groups.


@pytest.mark.parametrize(("in_progress", "room"), [(0, 3), (1, 2), (3, 0), (5, -2)])
def test_a_group_has_room_for_what_its_limit_leaves(in_progress: int, room: int) -> None:
    """It says how many runs are in progress; more than its limit, when the limit was lowered."""
    of = gates(FEW, [], active(FEW, in_progress))
    assert shut(of, FEW) == [(room, f"group few: {in_progress} of 3 runs are in progress")]


def test_a_gate_counts_the_runs_that_pass_in_this_plan() -> None:
    """The text of those that come after says it."""
    (gate,) = gates_of(gates(FEW, [], active(FEW, 2)), FEW)
    assert gate.is_open
    gate.taken += 1
    assert not gate.is_open
    assert gate.text == "group few: 3 of 3 runs are in progress"


def test_runs_share_the_gate_of_a_group_whatever_their_programs() -> None:
    """One gate for all, also when the text of the rule in their tags is an older one."""
    of = gates(FEW, [])
    first, second = (of.of([("arctic/group.few", text)]) for text in ("at most 3", "at most 9"))
    assert first == second


def test_a_limit_of_each_program_counts_programs_apart() -> None:
    """A program is a job of a code location, here."""
    of = gates(EACH, [], [*active(EACH, 2, job="load"), *active(EACH, 1, job="bill")])
    assert shut(of, EACH, job="load") == [
        (0, "group each, program lake: load: 2 of 2 runs are in progress")
    ]
    assert shut(of, EACH, job="bill") == [
        (1, "group each, program lake: bill: 1 of 2 runs are in progress")
    ]
    assert shut(of, EACH, job="load", location="harbour") == [
        (2, "group each, program harbour: load: 0 of 2 runs are in progress")
    ]


def test_a_run_that_was_never_queued_takes_a_place_in_its_group() -> None:
    """By what rules match; so Dagster, which does not see it there, is given a lower limit."""
    found = strays(2)
    of = gates(FEW, [], found)
    assert shut(of, FEW) == [(1, "group few: 2 of 3 runs are in progress")]
    assert of.limits() == [{"key": "arctic/group.few", "limit": 1}]
    queued = [*active(FEW, 1), *found]
    full = gates(FEW, [], queued)
    assert full.limits() == [{"key": "arctic/group.few", "limit": 1}]
    assert blocked(full, submitted(FEW, "waits"), queued)
    assert gates(FEW, [], strays(9)).limits() == [{"key": "arctic/group.few", "limit": 0}]


def test_a_run_that_was_never_queued_takes_the_place_of_its_program() -> None:
    """And of no other one."""
    found = strays(1, job="load")
    of = gates(EACH, [], found)
    key = "arctic/program.each"
    assert of.limits() == [
        {"key": key, "value": EACH_VALUE, "limit": 2},
        {"key": key, "value": "lake: load", "limit": 1},
    ]
    in_progress = [*found, *active(EACH, 1, job="load")]
    of = gates(EACH, [], in_progress)
    assert blocked(of, submitted(EACH, "waits", job="load"), in_progress)
    assert not blocked(of, submitted(EACH, "waits", job="bill"), in_progress)


def test_a_run_outside_of_all_rules_takes_no_place() -> None:
    """Control: another job."""
    rules = Rules.parse({"groups": {"few": {"limit": 3, "match": {"job": "load"}}}})
    of = gates(rules, [], strays(2, job="adhoc"))
    assert shut(of, rules) == [(3, "group few: 0 of 3 runs are in progress")]


@pytest.mark.parametrize(
    "tags", [{"arctic/group.each": "by hand"}, {"arctic/group.each": "at most 5 at once"}]
)
def test_a_run_without_the_tag_of_its_program_takes_its_place(tags: dict[str, str]) -> None:
    """Launched past the queue with a tag manually; or queued before the group limited programs."""
    found = strays(2, job="load", tags=tags)
    of = gates(EACH, [], found)
    waits = submitted(EACH, "waits", job="load")
    assert shut(of, EACH, job="load")[0][0] == 0
    assert blocked(of, waits, found)


# Windows.


def test_a_window_that_is_closed_says_when_it_opens() -> None:
    """At noon."""
    text = "window night opens at 2026-03-02 22:00:00Z (22:00-06:00 UTC)"
    of = gates(NIGHT, [])
    assert shut(of, NIGHT) == [(0, text)]
    assert of.limits() == [{"key": "arctic/window.night", "limit": 0}]


def test_a_window_that_is_open_lets_any_number_pass_and_says_until_when() -> None:
    """And is no limit for Dagster."""
    of = gates(DAY, [])
    assert shut(of, DAY) == [
        (math.inf, "window day is open until 2026-03-02 22:00:00Z (06:00-22:00 UTC)")
    ]
    assert of.limits() == []


def test_a_window_that_is_held_says_for_what_it_waits() -> None:
    """Its time has come, but what is paused is unknown."""
    of = gates(DAY, [])
    of.windows.hold(frozenset({"day"}))
    assert shut(of, DAY) == [
        (0, "window day stays closed until the state database answers (06:00-22:00 UTC)")
    ]
    assert of.limits() == [{"key": "arctic/window.day", "limit": 0}]


# Pauses.


@pytest.mark.parametrize("kind", Pausable)
def test_what_is_paused_is_shut_and_says_why(kind: Pausable) -> None:
    """It comes before other gates of the run."""
    name = "low" if kind is Pausable.QUEUE else "few"
    word = Pause(kind=kind, name=name, paused=True, reason="maintenance", at=NOON)
    of = gates(QUEUES, [], manual=[word])
    found = shut(of, QUEUES)
    reason = f"{kind} {name} is paused since 2026-03-02 12:00:00Z (maintenance)"
    assert found == [(0, reason), (3, "group few: 0 of 3 runs are in progress")]
    assert blocked(of, submitted(QUEUES, "waits"), [])
    assert not blocked(of, Run(run_id="not tagged"), [])


def test_a_paused_group_without_a_number_of_its_own_is_shut() -> None:
    """It limits each program; the pause holds all of them."""
    word = Pause(kind=Pausable.GROUP, name="each", paused=True, reason="", at=NOON)
    of = gates(EACH, [], manual=[word])
    assert [room for room, _ in shut(of, EACH)] == [0, 2]
    assert blocked(of, submitted(EACH, "waits"), [])


# Intervals.


def test_an_interval_lets_one_run_of_each_program_pass() -> None:
    """Before the first run; two that wait share the gate of their program."""
    of = gates(CALM, [])
    (gate,) = gates_of(of, CALM)
    assert (gate.room, gate.text) == (
        1,
        "interval calm (10m between runs) of lake: load: one may start",
    )
    gate.taken = 1
    assert gate.text == "interval calm (10m between runs) of lake: load: a run is in progress"
    assert gates_of(of, CALM) == (gate,)
    assert gates_of(of, CALM, job="bill") != (gate,)


@pytest.mark.parametrize("found", [active(CALM), strays()], ids=["queued", "never queued"])
def test_an_interval_is_shut_while_a_run_of_the_program_is_in_progress(found: list[Run]) -> None:
    """Also for Dagster, and for no other program."""
    of = gates(CALM, [], found)
    text = "interval calm (10m between runs) of lake: load: a run is in progress"
    assert shut(of, CALM) == [(0, text)]
    assert blocked(of, submitted(CALM, "waits"), found)
    assert not blocked(of, submitted(CALM, "waits", job="bill"), found)


@pytest.mark.parametrize(
    ("ago", "room"), [(0, 0), (1, 0), (599.999, 0), (600, 1), (601, 1), (86_400, 1)]
)
def test_an_interval_is_shut_for_its_length_after_the_last_end(ago: float, room: int) -> None:
    """The last one counts, and only of this program."""
    ended_at = NOON - timedelta(seconds=ago)
    ended = [
        submitted(CALM, f"{n}", dagster_status="SUCCESS", started_at=at, ended_at=at)
        for n, at in enumerate((ended_at - timedelta(hours=1), ended_at, ended_at - timedelta(1)))
    ]
    of = gates(CALM, [], ended=ended)
    found = shut(of, CALM)
    assert found[0][0] == room
    assert blocked(of, submitted(CALM, "waits"), []) is (room == 0)
    assert shut(of, CALM, job="bill")[0][0] == 1
    if ago == 1:
        assert found[0][1] == (
            "interval calm (10m between runs) of lake: load: the last run ended at "
            "2026-03-02 11:59:59Z, the next may start at 2026-03-02 12:09:59Z"
        )


@pytest.mark.parametrize(
    ("statuses", "counts"),
    [(["success"], ["SUCCESS"]), (["failure", "canceled"], ["FAILURE", "CANCELED"])],
)
def test_an_interval_counts_the_given_ends(statuses: list[str], counts: list[str]) -> None:
    """A run that ended in another way leaves no interval behind."""
    rules = Rules.parse({"intervals": {"calm": {"duration": "10m", "statuses": statuses, **ALL}}})
    for status in ("SUCCESS", "FAILURE", "CANCELED"):
        run = submitted(rules, "r", dagster_status=status, started_at=NOON, ended_at=NOON)
        assert shut(gates(rules, [], ended=[run]), rules)[0][0] == (0 if status in counts else 1)


# Rates.


def test_dagster_holds_every_run_whose_turn_it_is_not() -> None:
    """Whatever room there is: the plan says whose turn it is."""
    of = gates(API, [])
    waits = submitted(API, "waits")
    assert blocked(of, waits, [])
    waits.tags["arctic/rate.api"] = "granted"
    assert not blocked(of, waits, [])


# Dagster's own limits.


@pytest.mark.parametrize(
    ("limit", "text"),
    [
        ({"key": "team", "limit": 3}, "tag team: 2 of 3 runs are in progress"),
        ({"key": "team", "value": "a", "limit": 3}, "tag team=a: 1 of 3 runs are in progress"),
        ({"key": "team", "value": EACH_VALUE, "limit": 3},
         "tag team=a: 1 of 3 runs are in progress"),
        ({"key": "team", "value": {"applyLimitPerUniqueValue": False}, "limit": 3},
         "tag team: 2 of 3 runs are in progress"),
    ],
)  # fmt: skip
def test_a_limit_of_dagster_itself_is_a_gate(limit: dict[str, Any], text: str) -> None:
    """And stays a limit, as it is."""
    found = [*strays(tags={"team": "a"}), *strays(tags={"team": "b"}), *strays()]
    of = gates(Rules(), [], found, stock=[limit])
    (gate,) = of.of([("team", "a")])
    in_progress = int(text.partition(": ")[2][0])
    assert (gate.room, gate.text) == (3 - in_progress, text)
    assert of.limits() == [limit]
    assert of.of([("owner", "a")]) == ()


def test_of_two_limits_for_the_same_the_last_one_counts_as_in_dagster() -> None:
    """In the gate and in what Dagster is given."""
    limits = [{"key": "team", "value": "a", "limit": 0}, {"key": "team", "value": "a", "limit": 5}]
    of = gates(Rules(), [], stock=limits)
    assert [gate.room for gate in of.of([("team", "a")])] == [5]
    assert of.limits() == [limits[1]]


def test_the_places_of_limits() -> None:
    """An empty text is a value."""
    assert place_of({"key": "k", "limit": 1}) == ("k", None)
    assert place_of({"key": "k", "value": None, "limit": 1}) == ("k", None)
    assert place_of({"key": "k", "value": "", "limit": 1}) == ("k", "")
    assert place_of({"key": "k", "value": EACH_VALUE, "limit": 1}) == ("k", True)


# What is gone, and what is shown.


@pytest.mark.parametrize(
    "key",
    ["arctic/group.gone", "arctic/program.gone", "arctic/window.gone", "arctic/rate.gone",
     "arctic/interval.gone", "arctic/queue", "arctic/other.gone", "arctic/group", "arctic/",
     "group.few", "team"],
)  # fmt: skip
def test_a_tag_of_a_rule_that_is_gone_is_no_gate(key: str) -> None:
    """Runs that were queued before it was taken out of dagster.yaml start."""
    of = gates(FEW, [])
    assert of.of([(key, "gone")]) == ()
    assert not blocked(of, Run(run_id="r", tags={key: "waiting"}), [])


def test_of_several_gates_the_one_is_reported_first_that_a_person_shut() -> None:
    """Then windows, intervals, rates, groups, programs, and Dagster's own limits."""
    kinds: dict[str, Any] = {
        "groups": {"g": {"limit": 0, "limit_per_program": 0, **ALL}},
        "windows": {"w": {"start": "22:00", "end": "06:00", **ALL}},
        "rates": {"r": {"limit": 1, "per": "1m", **ALL}},
        "intervals": {"i": {"duration": "1m", **ALL}},
        "queues": {"q": {"paused": True, **ALL}},
    }
    rules = Rules.parse(kinds)
    stock = [{"key": "arctic/queue", "limit": 1}]
    found = gates_of(gates(rules, [], stock=stock), rules)
    assert [gate.id.partition(":")[0] for gate in found] == [
        "paused", "window", "interval", "rate", "group", "program", "tag",
    ]  # fmt: skip


def test_people_are_shown_the_rules_in_words() -> None:
    """What the queue criteria of Dagster's UI show; from the configuration and the time alone."""
    kinds: dict[str, Any] = {
        "groups": {"g": {"limit": 2, "limit_per_program": 1, **ALL}, "p": {"limit_per_program": 3}},
        "windows": {
            "night": {"start": "22:00", "end": "06:00"}, "day": {"start": "06:00", "end": "22:00"}
        },
        "rates": {"r": {"limit": 1, "per": "1m"}},
        "intervals": {"i": {"duration": "1m"}},
        "queues": {"low": {"paused": True}, "high": {}},
    }  # fmt: skip
    rules = Rules.parse(kinds)
    stock = [{"key": "team", "limit": 1}]
    shown = shown_limits(rules, stock, OpenWindows(), NOON)
    assert shown == [
        {"key": "team", "limit": 1},
        {"key": "arctic/queue", "value": "low", "limit": 0},
        {"key": "arctic/group.g", "value": "at most 2 at once, at most 1 of a program", "limit": 2},
        {"key": "arctic/program.g", "value": EACH_VALUE, "limit": 1},
        {"key": "arctic/program.p", "value": EACH_VALUE, "limit": 3},
        {"key": "arctic/window.night", "value": "22:00-06:00 UTC", "limit": 0},
        {"key": "arctic/interval.i", "value": EACH_VALUE, "limit": 1},
        {"key": "arctic/rate.r", "value": "waiting", "limit": 0},
    ]
    # The value is that of the run's tag: by it the UI finds the limit.
    tags = submitted(rules, "r").tags
    assert tags["arctic/group.g"] == shown[2]["value"]
    shown[0]["limit"] = 9
    assert stock == [{"key": "team", "limit": 1}]
