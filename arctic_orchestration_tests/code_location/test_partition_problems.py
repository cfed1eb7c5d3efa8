"""Schedules whose triggers say of partitions what the target, or an asset, cannot do."""

from typing import Any

import dagster as dg
import pytest
from dagster._core.remote_representation.external_data import RepositorySnap

from arctic_orchestration import Arctic, Schedule, on
from arctic_orchestration.errors import InvalidDefinition, InvalidInput
from arctic_orchestration.partitioning.maps import PartitionMap
from arctic_orchestration.schedules.dagster.partitioned_targets import without_partitions

daily = dg.DailyPartitionsDefinition("2026-01-01")
started = dg.DailyPartitionsDefinition("2026-01-01", end_offset=1)
regions = dg.StaticPartitionsDefinition(["emea", "amer", "apac"])
by_region = dg.MultiPartitionsDefinition({"date": daily, "region": regions})
DAILY = "daily partitions from 2026-01-01 (UTC)"


def spec(name: str | list[str], **given: Any) -> dg.AssetSpec:
    return dg.AssetSpec(name, **given)


@dg.asset(partitions_def=daily, deps=["orders", "payments"])
def summary() -> None: ...


@dg.asset(
    partitions_def=dg.MultiPartitionsDefinition(
        {"date": daily, "kind": dg.StaticPartitionsDefinition(["gross", "net"])}
    )
)
def takings() -> None: ...


@dg.asset(partitions_def=started)
def today() -> None: ...


@dg.asset(partitions_def=regions)
def areas() -> None: ...


@dg.asset
def report() -> None: ...


ASSETS: list[dg.AssetsDefinition | dg.AssetSpec] = [
    spec("orders", partitions_def=by_region),
    spec("payments", partitions_def=daily),
    spec("config"),
    spec("fruits", partitions_def=dg.StaticPartitionsDefinition(["apple", "pear"])),
    summary,
    takings,
    today,
    areas,
    report,
]
EACH: dict[str, Any] = {"name": "s", "target": {"assets": ["summary"]}, "partitions": "each"}


def refused(**fields: Any) -> tuple[InvalidInput, ...]:
    """The problems that Dagster is given when it puts the location together."""
    try:
        arctic = Arctic(schedules=[Schedule(**{**EACH, **fields})])
    except InvalidDefinition as error:
        return error.problems
    defs = dg.Definitions.merge(dg.Definitions(assets=ASSETS), arctic.definitions())
    try:
        defs.get_repository_def().get_all_jobs()
    except Exception as error:
        return _cause(error).problems
    return ()


def _cause(error: BaseException) -> InvalidDefinition:
    while not isinstance(error, InvalidDefinition):
        if error.__cause__ is None:
            raise error
        error = error.__cause__
    return error


@pytest.mark.parametrize(
    ("fields", "field", "value", "expected"),
    [
        # A clock that names no partition, or none that the target has.
        ({"trigger": on.cron("0 2 * * *")}, "cron.partition", None, "last_ended, current"),
        ({"trigger": on.partitions("orders") | on.cron("0 2 * * *"), "partitions": "range"},
         "any_of[1].cron.partition", None, f"summary has {DAILY}"),
        ({"trigger": on.cron("0 2 * * *", partition="current")}, "cron.partition", "current",
         "last_ended, or an end_offset of at least 1"),
        ({"trigger": on.cron("0 2 * * *", partition=["2025-12-31"])}, "cron.partition",
         "2025-12-31", "one of the partitions"),
        ({"trigger": on.cron("0 2 * * *", partition="last_ended"),
          "target": {"assets": ["areas"]}}, "cron.partition", "last_ended", "windows of time"),
        ({"trigger": on.partition_end("1h"), "target": {"assets": ["areas"]}}, "partition_end",
         {"after": "1h"}, "windows of time"),
        # Mappings that cannot work; both definitions are named.
        ({"trigger": on.partitions("fruits")}, "partitions.mapping", None, DAILY),
        ({"trigger": on.partitions("orders"), "target": {"assets": ["takings"]}},
         "partitions.mapping", None, "the mapping {multi: {date: {dimension: date}}} works"),
        ({"trigger": on.partitions("fruits", mapping={"time_window": {}})},
         "partitions.mapping", {"time_window": {}}, DAILY),
        ({"trigger": on.partitions("orders", mapping={"dimension": "planet"})},
         "partitions.mapping", {"dimension": "planet"}, "planet"),
        ({"trigger": on.partitions("orders", mapping="sideways")}, "partitions.mapping",
         "sideways", "identity"),
        ({"trigger": on.partitions("config", mapping="identity")}, "partitions.mapping",
         "identity", "no mapping: config has no partitions in this code location"),
        # Counts that nothing can reach.
        ({"trigger": on.partitions("payments", count=2)}, "partitions.count", 2, "at most 1"),
        ({"trigger": on.partitions("orders", count=4)}, "partitions.count", 4, "at most 3"),
        ({"trigger": on.partitions("config", count="all")}, "partitions.count", "all",
         "no count: config has no partitions in this code location"),
        # Groups.
        ({"trigger": on.partitions("orders", per="date")}, "partitions.per", "date", "no per"),
        ({"trigger": on.partitions("orders", per="planet", count="all"), "partitions": "none",
          "target": {"assets": ["report"]}}, "partitions.per", "planet",
         "one of the dimensions date, region"),
        ({"trigger": on.partitions("payments", per="date", count="all"), "partitions": "none",
          "target": {"assets": ["report"]}}, "partitions.per", "date",
         f"no per: payments has {DAILY}"),
        # What belongs together, where nothing does.
        ({"trigger": on.partitions("orders", count="all"), "partitions": "none",
          "target": {"assets": ["report"]}}, "partitions.count", "all", "each or range"),
        ({"trigger": on.partitions("orders", complete=True), "partitions": "none",
          "target": {"assets": ["report"]}}, "partitions.complete", True, "each or range"),
        ({"trigger": on.partitions("orders", late="ignore"), "partitions": "none",
          "target": {"assets": ["report"]}}, "partitions.late", "ignore", "each or range"),
        ({"trigger": on.partition_end("1h"), "partitions": "none",
          "target": {"assets": ["report"]}}, "partition_end", {"after": "1h"}, "each or range"),
        ({"trigger": on.cron("0 2 * * *", partition="last_ended"), "partitions": "none",
          "target": {"assets": ["report"]}}, "cron.partition", "last_ended", "each or range"),
    ],
)  # fmt: skip
def test_it_is_refused_when_defined(
    fields: dict[str, Any], field: str, value: object, expected: str
) -> None:
    """The field, its value, and what was expected; nothing else is complained of."""
    (problem,) = refused(**fields)
    assert problem.field == f"Schedule(s).trigger.{field}"
    assert problem.value == value
    assert expected in problem.expected


@pytest.mark.parametrize(
    "fields",
    [
        {"trigger": on.partitions("orders", count="all") | on.partition_end("6h")},
        {"trigger": on.partitions("orders", count=3) & on.partitions("payments")},
        {"trigger": on.partitions("orders") & on.partitions("config")},
        {"trigger": on.partitions("orders", mapping={"dimension": "date"})},
        {"trigger": on.cron("0 2 * * *", partition="last_ended", offset=-2)},
        {"trigger": on.cron("0 2 * * *", partition="current"), "target": {"assets": ["today"]}},
        {"trigger": on.cron("0 2 * * *", partition=["emea"]), "target": {"assets": ["areas"]}},
        {"trigger": on.cron("0 2 * * *", partition="all_missing"), "partitions": "range"},
        {"trigger": on.partitions("orders", mapping={"dimension": "region"}),
         "target": {"assets": ["areas"]}},
        {"trigger": on.partitions("orders", per="date", count="all"), "partitions": "none",
         "target": {"assets": ["report"]}},
        {"trigger": on.partitions("config", count=4), "partitions": "none",
         "target": {"assets": ["report"]}},
    ],
)  # fmt: skip
def test_what_can_work_is_accepted(fields: dict[str, Any]) -> None:
    """The sentences that people say about their lake."""
    assert refused(**fields) == ()


@pytest.mark.parametrize("partitions", ["each", "range"])
def test_assets_with_different_partitions_are_refused_together(partitions: str) -> None:
    """No run can have a partition of both. A run without one can make them."""
    target = {"assets": ["areas", "today"]}
    (problem,) = refused(trigger=on.partitions("config"), partitions=partitions, target=target)
    assert (problem.field, problem.value) == ("Schedule(s).partitions", partitions)
    assert f"areas, today have the partitions emea, amer, apac and {DAILY}" in problem.expected
    assert refused(trigger=on.partitions("config"), partitions="none", target=target) == ()


def _days(start: str) -> dg.DailyPartitionsDefinition:
    return dg.DailyPartitionsDefinition(start)


@pytest.mark.parametrize(
    ("upstream", "target", "mapping", "most"),
    [
        (daily, daily, dg.TimeWindowPartitionMapping(start_offset=-6), 7),
        (_days("2026-01-15"), dg.MonthlyPartitionsDefinition("2026-01-01"), None, 31),
        (_days("2026-01-07"), dg.WeeklyPartitionsDefinition("2026-01-04"), None, 7),
        (_days("2026-02-01"), dg.MonthlyPartitionsDefinition("2026-02-01"), None, 31),
        # The day on which clocks go back; one more is accepted for it.
        (dg.HourlyPartitionsDefinition("2026-01-01-12:00"), daily, None, 25),
        (
            dg.StaticPartitionsDefinition(["us", "de", "fr", "it"]),
            dg.StaticPartitionsDefinition(["amer", "emea"]),
            dg.StaticPartitionMapping({"us": "amer", "de": "emea", "fr": "emea", "it": "emea"}),
            3,
        ),
    ],
)
def test_a_count_is_judged_by_the_partition_with_the_most(
    upstream: dg.PartitionsDefinition[str],
    target: dg.PartitionsDefinition[str],
    mapping: dg.PartitionMapping | None,
    most: int,
) -> None:
    """The first one may be shorter than all that follow."""
    source = spec("sales", partitions_def=upstream)

    @dg.asset(partitions_def=target, deps=[dg.AssetDep("sales", partition_mapping=mapping)])
    def total() -> None: ...

    def load(trigger: Any) -> None:
        schedule = Schedule(name="s", target=total, partitions="each", trigger=trigger)
        location = dg.Definitions.merge(
            dg.Definitions(assets=[source, total]), Arctic(schedules=[schedule]).definitions()
        )
        dg.Definitions.validate_loadable(location)

    load(on.partitions("sales", count=most))
    with pytest.raises(Exception, match="Failed|at most|Error") as refusal:
        load(on.partitions("sales", count=most + 2))
    (problem,) = _cause(refusal.value).problems
    assert problem.field == "Schedule(s).trigger.partitions.count"
    # Another branch makes jobs all the same.
    load(on.partitions("sales", count=most + 2) | on.quiet("sales", "10m"))


def test_a_count_that_the_first_partition_reaches_costs_one_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A code location may have thousands of them."""
    looked_at: list[str] = []
    sources_of = PartitionMap.sources_of

    def look(self: PartitionMap, key: str, *at: Any) -> tuple[str, ...]:
        looked_at.append(key)
        return sources_of(self, key, *at)

    monkeypatch.setattr(PartitionMap, "sources_of", look)
    assert refused(trigger=on.partitions("orders", count=3)) == ()
    assert looked_at == ["2026-01-01"]


def test_keys_with_a_part_that_is_dynamic_are_not_known_when_the_code_loads() -> None:
    """Dagster keeps them in its instance."""
    tenants = dg.MultiPartitionsDefinition(
        {"date": daily, "tenant": dg.DynamicPartitionsDefinition(name="tenants")}
    )

    @dg.asset(partitions_def=tenants)
    def total() -> None: ...

    trigger = on.cron("0 4 * * *", partition=["2026-01-01|a"])
    schedule = Schedule(name="s", target=total, partitions="each", trigger=trigger)
    location = dg.Definitions.merge(
        dg.Definitions(assets=[total]), Arctic(schedules=[schedule]).definitions()
    )
    dg.Definitions.validate_loadable(location)


def test_an_asset_whose_key_is_one_part_with_a_slash() -> None:
    """``AssetSpec("raw/x")`` is found by its name; not where its key must be what the name says."""

    def refusal(*assets: Any, **fields: Any) -> str:
        schedule = Schedule(**{**EACH, "trigger": on.partitions("raw/x", count="all"), **fields})
        defs = dg.Definitions.merge(
            dg.Definitions(assets=[*ASSETS, *assets]),
            Arctic(schedules=[schedule]).definitions(),
        )
        try:
            defs.get_repository_def().get_all_jobs()
        except Exception as error:
            return str(error.__cause__ or error).splitlines()[-1]
        return ""

    other_key = "the key ['raw', 'x']: the location has ['raw/x'], one part"
    one_part = spec("raw/x", partitions_def=daily)
    assert refusal(one_part).endswith(other_key)
    assert refusal(one_part, trigger=on.partitions("raw/x", complete=True)).endswith(other_key)
    assert refusal(one_part, spec(["raw", "x"], partitions_def=daily)) == ""
    assert refusal(one_part, trigger=on.partitions("raw/x")) == ""


def test_problems_of_a_job_are_refused_when_its_location_loads() -> None:
    """Without partitions, with some that an asset's cannot be mapped to, and run without one."""
    plain = dg.define_asset_job("plain", selection=[report])
    days = dg.define_asset_job("days", selection=[summary])

    def load(job: str, asset: str, partitions: str = "each", **trigger: Any) -> None:
        fields = {"partitions": partitions, "trigger": on.partitions(asset, **trigger)}
        schedule = Schedule(**{**EACH, "target": job, **fields})
        location = dg.Definitions.merge(
            dg.Definitions(assets=ASSETS, jobs=[plain, days]),
            Arctic(schedules=[schedule], numbers_every=None).definitions(),
        )
        RepositorySnap.from_def(location.get_repository_def())

    with pytest.raises(InvalidDefinition, match="none: the job has no partitions"):
        load("plain", "orders")
    with pytest.raises(InvalidDefinition) as refusal:
        load("days", "fruits")
    (problem,) = refusal.value.problems
    assert problem.field == "Schedule(s).trigger.partitions.mapping"
    assert DAILY in problem.expected
    assert "apple" in problem.expected
    with pytest.raises(InvalidDefinition, match="each or range: summary and its parent orders are"):
        load("days", "orders", "none")
    load("plain", "orders", "none")
    load("days", "orders", count="all")


def test_a_trigger_without_partitions_makes_no_jobs_for_them() -> None:
    """Of an asset, a job or a run; one name that has some, or may have, is enough."""
    plain = dg.define_asset_job("plain", selection=[report])
    days = dg.define_asset_job("days", selection=[summary])
    repository = dg.Definitions(assets=ASSETS, jobs=[plain, days]).get_repository_def()

    def named(trigger: Any, **fields: Any) -> list[str]:
        schedule = Schedule(**{**EACH, "trigger": trigger, **fields})
        return without_partitions(schedule, repository)

    made, fails = on.partitions("report"), on.freshness("payments", state="fail")
    assert named(made) == ["report"]
    assert named(made & on.run("plain") & fails) == ["plain", "report"]
    assert named(on.run(assets=["report"]) | on.elapsed("1h")) == ["report"]
    assert named(on.check("report")) == ["report"]
    for begins in (
        on.partitions("summary"),
        # It arrives from outside: each arrival may name a partition.
        on.partitions("config"),
        on.run("days"),
        on.run("plain", location="elsewhere"),
        on.cron("0 4 * * *", partition="last_ended"),
        on.partition_end(after="1h"),
    ):
        assert named(made & begins) == []
    assert named(made, partitions="none") == []
