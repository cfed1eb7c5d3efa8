"""``arctic schedules partitions``: a calendar of target partitions."""

import json
from collections.abc import Callable, Iterator, Sequence

import pytest

from arctic_orchestration.event_log.event import RunStatus
from arctic_orchestration.schedules.cli import target_partitions
from arctic_orchestration.schedules.constraints import only
from arctic_orchestration.schedules.inventory import Inventory, Partitioning
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.simulator import read_declared
from arctic_orchestration.schedules.triggers import on
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.cli.conftest import Outcome
from arctic_orchestration_tests.schedules.lake_of_partitions import (
    ASSETS,
    DAILY,
    DAY,
    REGIONS,
    Declared,
    daily,
    end_runs,
)
from arctic_orchestration_tests.schedules.simulated import World, at

Command = Callable[..., Outcome]
MakeLake = Callable[..., World]
DAYS = Partitioning(format="%Y-%m-%d", form=json.dumps(DAILY))
KNOWN = Inventory(
    assets={"summary": DAYS, "raw/orders": Partitioning(form=json.dumps(REGIONS)), "report": None},
    executable=frozenset({"summary", "report"}),
)


@pytest.fixture
def make(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeLake]:
    """Makes an engine over declared partitions; for the command it is noon of 2026-01-05."""
    monkeypatch.setenv("ARCTIC_DATABASE_URL", database_url)
    monkeypatch.setattr(target_partitions, "utc_now", lambda: at(4.5 * DAY))

    database = Database(database_url)

    def make(schedules: Sequence[Schedule], inventory: Inventory | None = KNOWN) -> World:
        targets = Declared(read_declared({"assets": ASSETS}))
        made = World(database, schedules, targets=targets)
        made.engine.inventory = inventory
        made.tick(0)
        made.tick(1)
        return made

    yield make
    database.close()


def arrive(here: World, *keys: str, asset: str = "raw/orders") -> None:
    for key in keys:
        here.feed.arrive(asset, key)


def statuses(arctic: Command, *options: str, name: str = "daily") -> dict[str, str]:
    """The status of each partition, in the order of the list."""
    document = json.loads(arctic("schedules", "partitions", name, *options, "--json").out)
    return {each["partition"]: each["status"] for each in document["partitions"]}


def three_of(day: str) -> list[str]:
    return [f"{day}|{region}" for region in ("emea", "amer", "apac")]


@pytest.fixture
def here(make: MakeLake) -> World:
    """Days that are done, failed, waited for again, waited for, running and untouched."""
    made = make([daily(trigger=on.partitions("raw/orders", count=2))])
    arrive(made, *three_of("2026-01-01"))
    made.tick(2 * DAY)
    end_runs(made, 2 * DAY + 1)
    arrive(made, *three_of("2026-01-02"))
    made.tick(2 * DAY + 2)
    made.dagster.end("run-2", RunStatus.FAILURE)
    made.tick(2 * DAY + 3)
    arrive(made, "2026-01-01|apac", "2026-01-04|emea")
    arrive(made, *three_of("2026-01-03"))
    made.tick(3 * DAY + 5)
    made.tick(3 * DAY + 6)
    return made


def test_each_partition_says_how_it_stands(here: World, arctic: Command) -> None:
    """The newest first, up to the window that goes on, with what the job waits for."""
    assert statuses(arctic) == {
        "2026-01-05": "never",
        "2026-01-04": "waiting",
        "2026-01-03": "running",
        "2026-01-02": "failed",
        "2026-01-01": "late",
    }
    document = json.loads(arctic("schedules", "partitions", "daily", "--json").out)
    assert (document["schedule"], document["complete"], document["next_after"]) == (
        "daily",
        True,
        None,
    )
    of_day = {each["partition"]: each for each in document["partitions"]}
    assert of_day["2026-01-04"]["reason"] == "1 of 2 partitions of raw/orders have arrived"
    assert of_day["2026-01-03"]["run_id"] == "run-3"
    assert of_day["2026-01-01"]["fired_at"] == "2026-01-03T00:00:00Z"
    table = arctic("schedules", "partitions", "daily").out
    assert table.splitlines()[0].split() == ["partition", "status", "fired", "job", "run", "reason"]
    assert "2026-01-04" in table
    assert "1 of 2 partitions of raw/orders have arrived" in table
    end_runs(here, 3 * DAY + 7)
    assert statuses(arctic)["2026-01-03"] == "done"


@pytest.mark.parametrize(
    ("options", "days"),
    [
        (("--from", "2026-01-04"), ["05", "04"]),
        (("--to", "2026-01-02"), ["02", "01"]),
        (("--from", "2026-01-02T12:00", "--to", "2026-01-03"), ["03", "02"]),
        (("--from", "2025-12-01", "--to", "2027-01-01"), ["05", "04", "03", "02", "01"]),
        (("--limit", "2"), ["05", "04"]),
        (("--limit", "2", "--after", "2026-01-04"), ["03", "02"]),
        (("--from", "2026-02-01"), []),
    ],
)
@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
def test_a_list_is_from_a_day_to_a_day_and_has_pages(
    here: World, arctic: Command, options: tuple[str, ...], days: list[str]
) -> None:
    """Both ends included; a moment means the window it lies in."""
    assert list(statuses(arctic, *options)) == [f"2026-01-{day}" for day in days]


def test_pages_meet(here: World, arctic: Command) -> None:
    """Each page says after which key the next one begins; the last says none."""
    seen, after = list[str](), list[str]()
    for _ in range(4):
        document = json.loads(
            arctic("schedules", "partitions", "daily", "--limit", "2", *after, "--json").out
        )
        seen += [each["partition"] for each in document["partitions"]]
        if document["next_after"] is None:
            break
        after = ["--after", document["next_after"]]
    assert seen == [f"2026-01-0{day}" for day in (5, 4, 3, 2, 1)]
    table = arctic("schedules", "partitions", "daily", "--limit", "2").out
    assert "more: --after 2026-01-04" in table


def test_a_partition_to_come_is_listed_where_a_job_waits_for_it(
    make: MakeLake, arctic: Command
) -> None:
    """And one that the definition no longer has, at the end."""
    here = make([daily(trigger=on.partitions("raw/orders", count="all"))])
    arrive(here, "2026-01-09|emea")
    here.tick(2)
    assert list(statuses(arctic))[:2] == ["2026-01-09", "2026-01-05"]
    later = {"daily": {"start": "2026-01-04"}}
    here.engine = here.new_engine()
    assets = {"summary": Partitioning(format="%Y-%m-%d", form=json.dumps(later))}
    here.engine.inventory = Inventory(assets=assets, executable=frozenset({"summary"}))
    arrive(here, "2026-01-01|emea")
    here.tick(3)
    assert statuses(arctic) == {
        "2026-01-09": "waiting",
        "2026-01-05": "never",
        "2026-01-04": "never",
        "2026-01-01": "waiting",
    }


@pytest.mark.parametrize("inventory", [None, Inventory(assets={"summary": None})])
def test_without_the_definition_only_partitions_with_jobs_are_listed(
    make: MakeLake, arctic: Command, inventory: Inventory | None
) -> None:
    """And the command says so."""
    here = make([daily(trigger=on.partitions("raw/orders", count=2))], inventory)
    arrive(here, *three_of("2026-01-01"), "2026-01-02|emea", "2026-01-03|emea")
    here.tick(2 * DAY)
    assert statuses(arctic) == {
        "2026-01-03": "waiting",
        "2026-01-02": "waiting",
        "2026-01-01": "running",
    }
    assert list(statuses(arctic, "--from", "2026-01-02", "--after", "2026-01-03")) == ["2026-01-02"]
    assert "only those with jobs" in arctic("schedules", "partitions", "daily").out


def test_partitions_of_a_range_have_its_run(make: MakeLake, arctic: Command) -> None:
    """The jobs that joined another one stand as that one does."""
    here = make([daily(trigger=on.partitions("raw/days"), partitions="range")])
    arrive(here, "2026-01-01", "2026-01-02", "2026-01-04", asset="raw/days")
    here.tick(4 * DAY)
    here.dagster.end("run-1")
    here.tick(4 * DAY + 1)
    assert statuses(arctic) == {
        "2026-01-05": "never",
        "2026-01-04": "running",
        "2026-01-03": "never",
        "2026-01-02": "done",
        "2026-01-01": "done",
    }


def test_a_job_that_ended_without_a_run_and_one_no_longer_kept(
    make: MakeLake, arctic: Command
) -> None:
    """``discarded``, and ``fired``, since how the run ended is not known any more."""
    canceling = only.window("22:00", "23:00", otherwise="cancel")
    here = make([daily(trigger=on.partitions("raw/days"), constraints=[canceling])])
    arrive(here, "2026-01-01", asset="raw/days")
    here.tick(2 * DAY)
    assert statuses(arctic)["2026-01-01"] == "discarded"
    here.tick(40 * DAY)
    here.tick(40 * DAY + 3600)
    assert statuses(arctic, "--to", "2026-01-01") == {"2026-01-01": "fired"}


def test_a_schedule_with_per_lists_its_groups(make: MakeLake, arctic: Command) -> None:
    """The days of keys of day and region, where the target has no partitions."""
    trigger = on.partitions("raw/orders", count="all", per="date")
    here = make([daily(trigger=trigger, target={"assets": ["report"]}, partitions="none")])
    arrive(here, *three_of("2026-01-02"), "2026-01-03|emea")
    here.tick(2 * DAY)
    found = statuses(arctic, "--from", "2026-01-02")
    assert found == {
        "2026-01-05": "never",
        "2026-01-04": "never",
        "2026-01-03": "waiting",
        "2026-01-02": "running",
    }


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("daly",), "location here has no schedule daly; did you mean daily?"),
        (("plain",), "NAME: got 'plain', expected a schedule with partitions: each or range, or a"),
        (("daily", "--from", "x"), "--from: got 'x', expected a date such as 2026-01-31, or a"),
        (("daily", "--to", "2026-13"), "--to: got '2026-13', expected a date such as 2026-01-31"),
    ],
)
def test_bad_input_is_one_message(
    make: MakeLake, arctic: Command, arguments: tuple[str, ...], message: str
) -> None:
    """Exit code 2."""
    plain = Schedule(name="plain", target="rollup", trigger=on.partitions("raw/days"), enabled=True)
    make([daily(trigger=on.partitions("raw/days")), plain])
    refused = arctic("schedules", "partitions", *arguments)
    assert refused.code == 2
    assert message in refused.err
    assert "Traceback" not in refused.err
