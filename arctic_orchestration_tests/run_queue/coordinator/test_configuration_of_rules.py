"""Rules in a real ``dagster.yaml``, as Dagster reads it."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from dagster import DagsterInstance, DagsterInvalidConfigError
from dagster import DagsterRunStatus as Status
from dagster._core.run_coordinator.queued_run_coordinator import QueuedRunCoordinator

from arctic_orchestration.coordinator import ArcticRunCoordinator
from arctic_orchestration.errors import ConfigurationError, InvalidDefinition
from arctic_orchestration_tests.run_queue.coordinator.daemon_queue import OURS, RunQueue

HEAD = """
telemetry: {enabled: false}
run_coordinator:
  module: arctic_orchestration.coordinator
  class: ArcticRunCoordinator
"""
#: everything that the stock class takes
STOCK_CONFIG: dict[str, Any] = {
    "max_concurrent_runs": 12,
    "tag_concurrency_limits": [
        {"key": "database", "value": "tiny", "limit": 3},
        {"key": "dagster/backfill", "limit": 2},
        {"key": "team", "value": {"applyLimitPerUniqueValue": True}, "limit": 1},
    ],
    "dequeue_interval_seconds": 7,
    "dequeue_use_threads": True,
    "dequeue_num_workers": 4,
    "max_user_code_failure_retries": 2,
    "user_code_failure_retry_delay": 30,
    "block_op_concurrency_limited_runs": {"enabled": True, "op_concurrency_slot_buffer": 1},
}
RULES = """
    groups:
      warehouse: {limit: 3, match: [{job: "load_*"}, {asset: "marts/*"}]}
      refunds: {limit_per_program: 1, match: {tags: {team: finance}}}
    windows:
      nightly: {start: "22:00", end: "06:00", timezone: Europe/Berlin, match: {job: bill}}
    rates:
      api: {limit: 10, per: 1m, match: {tags: {source: crm}}}
    intervals:
      calm: {duration: 10m, match: {job: rollup}}
    queues:
      urgent: {level: 2, share: 4, match: {tags: {tier: "1"}}}
      backfills: {share: 1, match: {tags: {dagster/backfill: "*"}}}
    seconds_per_level: 300
"""


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The storage of all instances: to make one takes two seconds, and nothing is stored."""
    return tmp_path_factory.mktemp("storage")


@pytest.fixture
def instance_of(storage: Path, tmp_path: Path) -> Iterator[Callable[[str], DagsterInstance]]:
    """Makes an instance of the text of a ``dagster.yaml``."""
    made: list[DagsterInstance] = []

    def make(text: str) -> DagsterInstance:
        home = tmp_path / f"home_{len(made)}"
        home.mkdir()
        (home / "dagster.yaml").write_text(
            f"{text}\nstorage: {{sqlite: {{base_dir: {storage}}}}}\n"
        )
        made.append(DagsterInstance.from_config(str(home)))
        return made[-1]

    yield make
    for instance in made:
        instance.dispose()


@pytest.fixture
def configured(
    instance_of: Callable[[str], DagsterInstance],
) -> Callable[[str], ArcticRunCoordinator]:
    """Makes the run coordinator whose ``config`` has this text."""

    def make(config: str, rest: str = "") -> ArcticRunCoordinator:
        made = instance_of(f"{HEAD}  config:\n{config}{rest}").run_coordinator
        assert isinstance(made, ArcticRunCoordinator)
        return made

    return make


def test_all_that_the_stock_class_takes_is_taken_with_rules_beside_it(
    configured: Callable[[str], ArcticRunCoordinator],
) -> None:
    """Control: the stock class takes exactly these keys."""
    stock_type: Any = QueuedRunCoordinator.config_type()
    assert stock_type.keys() == STOCK_CONFIG.keys()
    stock = "".join(f"    {line}\n" for line in yaml.safe_dump(STOCK_CONFIG).splitlines())
    made = configured(stock + RULES)
    assert made.max_concurrent_runs == 12
    assert made.stock_limits == STOCK_CONFIG["tag_concurrency_limits"]
    assert (made.dequeue_interval_seconds, made.dequeue_num_workers) == (7, 4)
    assert (made.dequeue_use_threads, made.op_concurrency_slot_buffer) == (True, 1)
    settings = made.get_run_queue_config()
    assert settings.max_user_code_failure_retries == 2
    assert settings.user_code_failure_retry_delay == 30
    assert settings.explicitly_enabled_concurrency_run_blocking is True
    rules = made.rules
    assert rules.groups["warehouse"].limit == 3
    assert len(rules.groups["warehouse"].match) == 2
    assert rules.groups["refunds"].match[0].tags == {"team": "finance"}
    assert rules.windows["nightly"].text == "22:00-06:00 Europe/Berlin"
    assert rules.rates["api"].per == timedelta(minutes=1)
    assert rules.intervals["calm"].duration == timedelta(minutes=10)
    assert (rules.queues["urgent"].level, rules.queues["urgent"].share) == (2, 4)
    assert rules.seconds_per_level == 300


@pytest.mark.parametrize("text", ["", "  config: {}", "  config: {groups: null}"])
def test_without_rules_there_are_none(
    instance_of: Callable[[str], DagsterInstance], text: str
) -> None:
    """The section may be missing or empty."""
    made = instance_of(HEAD + text).run_coordinator
    assert isinstance(made, ArcticRunCoordinator)
    assert made.rules.are_none


def test_queues_are_in_the_order_of_their_levels(
    configured: Callable[[str], ArcticRunCoordinator],
) -> None:
    """Control: the order in which they are written is lost on the way through Dagster."""
    made = configured(RULES)
    assert made.inst_data is not None
    assert list(yaml.safe_load(made.inst_data.config_yaml)["queues"]) == ["backfills", "urgent"]
    assert list(made.rules.queues) == ["urgent", "backfills", "default"]


def test_numbers_come_from_the_environment(
    configured: Callable[[str], ArcticRunCoordinator], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the stock class lets them, and for the seconds of a level."""
    names = ("max_concurrent_runs", "dequeue_interval_seconds", "dequeue_num_workers",
             "max_user_code_failure_retries", "user_code_failure_retry_delay",
             "seconds_per_level")  # fmt: skip
    for number, name in enumerate(names, start=11):
        monkeypatch.setenv(name.upper(), str(number))
    made = configured("".join(f"    {name}: {{env: {name.upper()}}}\n" for name in names))
    settings = made.get_run_queue_config()
    assert (made.max_concurrent_runs, made.dequeue_interval_seconds) == (11, 12)
    assert made.dequeue_num_workers == 13
    assert settings.max_user_code_failure_retries == 14
    assert settings.user_code_failure_retry_delay == 15
    assert made.rules.seconds_per_level == 16


@pytest.mark.parametrize("value", ["0", "86401", "-5"])
def test_a_number_from_the_environment_is_checked_like_any(
    configured: Callable[[str], ArcticRunCoordinator], monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    """By us; what is no number, or not set, is refused by Dagster, which names the key."""
    monkeypatch.setenv("SECONDS", value)
    with pytest.raises(InvalidDefinition) as refusal:
        configured("    seconds_per_level: {env: SECONDS}\n")
    assert str(refusal.value) == (
        f"run_coordinator.config.seconds_per_level: got {value}, expected a whole number, 1 to "
        "86400"
    )


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ("    group: {a: {limit: 1}}", '"group"'),
        ("    Groups: {a: {limit: 1}}", '"Groups"'),
        ("    window: {}", '"window"'),
        ("    second_per_level: 5", '"second_per_level"'),
        ("    max_concurrent: 5", '"max_concurrent"'),
        ("    seconds_per_level: many", "root:seconds_per_level"),
        ("    seconds_per_level: true", "root:seconds_per_level"),
        ("    seconds_per_level: 1.5", "root:seconds_per_level"),
        ("    seconds_per_level: null", "root:seconds_per_level"),
        ("    seconds_per_level: {env: NOBODY_SET_THIS}", "NOBODY_SET_THIS"),
    ],
)
def test_what_is_not_of_the_form_is_refused_by_dagster_which_names_the_key(
    configured: Callable[[str], ArcticRunCoordinator], config: str, named: str
) -> None:
    """Names of sections, and numbers that are none."""
    with pytest.raises(DagsterInvalidConfigError) as refusal:
        configured(f"{config}\n")
    assert named in str(refusal.value)


#: text of a rule, and the one line that refuses it
WRONG = {
    "    windows: {nightly: {start: 22:00, end: 06:00}}":
        'windows.nightly.start: got 1320, expected a time of day in quotes: YAML reads 22:00 '
        "without them as 1320",
    "    windows: {nightly: {start: '22:00', end: 6}}":
        'windows.nightly.end: got 6, expected a time of day such as "22:00"',
    "    windows: {nightly: {start: '22:00', end: '06:00', days: [on]}}":
        "windows.nightly.days[0]: got True, expected 'mon', 'tue', 'wed', 'thu', 'fri', 'sat' or "
        "'sun'",
    "    groups: [a]": "groups: got ['a'], expected a mapping from names to rules",
    "    queues: low": "queues: got 'low', expected a mapping from names to rules",
    "    rates: 5": "rates: got 5, expected a mapping from names to rules",
    "    groups: {a: {}}": "groups.a: got {}, expected limit, limit_per_program or both",
    "    groups: {a: }": "groups.a: got {}, expected limit, limit_per_program or both",
    "    groups: {a: {limit: yes}}": "groups.a.limit: got True, expected a whole number",
    "    groups: {a: {limit: {env: LIMIT}}}":
        "groups.a.limit: got {'env': 'LIMIT'}, expected a whole number",
    "    groups: {a: {limit: 1, match: {tags: {tier: 1}}}}":
        "groups.a.match[0].tags.tier: got 1, expected text",
    "    groups: {a: {limit: 1, match: {tags: {no: x}}}}":
        "groups.a.match[0].tags: got False, expected text as a key",
    "    groups: {a: {limit: 1, 5: 3}}": "groups.a[5]: got 5, expected text as a key",
    "    groups: {'a b': {limit: 1}}":
        "groups: got 'a b', expected a name of 1 to 40 of A-Z a-z 0-9 _ -, beginning with a letter "
        "or digit",
    "    rates: {api: {limit: 08, per: 1m}}":
        "rates.api.limit: got '08', expected a whole number",
    "    rates: {api: {limit: 1, per: 1:30}}":
        "rates.api.per: got 90, expected a duration such as 90s, 5m, 4h, 1d or 1h30m",
    "    intervals: {calm: {duration: 600}}":
        "intervals.calm.duration: got 600, expected a duration such as 90s, 5m, 4h, 1d or 1h30m",
    "    queues: {low: {share: .nan}}":
        "queues.low.share: got nan, expected a number that is not infinite",
    "    queues: {low: {share: .inf}}":
        "queues.low.share: got inf, expected a number that is not infinite",
    "    queues: {low: {share: 1e3}}":
        "queues.low.share: got '1e3', expected a number more than 0",
    "    queues: {low: {paused: 'yes'}}": "queues.low.paused: got 'yes', expected true or false",
    "    seconds_per_level: 0": "seconds_per_level: got 0, expected a whole number, 1 to 86400",
}  # fmt: skip


@pytest.mark.parametrize(("text", "line"), WRONG.items())
def test_a_wrong_rule_is_named_by_its_whole_path(
    configured: Callable[[str], ArcticRunCoordinator], text: str, line: str
) -> None:
    """With what YAML made of it, and what was expected."""
    with pytest.raises(InvalidDefinition) as refusal:
        configured(f"{text}\n")
    assert str(refusal.value) == f"run_coordinator.config.{line}"


def test_all_that_is_wrong_is_named_at_once(
    configured: Callable[[str], ArcticRunCoordinator],
) -> None:
    """One line each, whatever else of the file is right."""
    with pytest.raises(InvalidDefinition) as refusal:
        configured(
            "    groups: {a: {limit: -1}, b: {limit: 1}}\n"
            "    windows: {nightly: {start: 22:00, end: 22:00, zone: UTC}}\n"
            "    seconds_per_level: 0\n"
        )
    places = [line.partition(": ")[0] for line in str(refusal.value).splitlines()]
    assert places == [
        "run_coordinator.config.groups.a.limit",
        "run_coordinator.config.windows.nightly.start",
        "run_coordinator.config.windows.nightly.end",
        "run_coordinator.config.windows.nightly.zone",
        "run_coordinator.config.seconds_per_level",
    ]


@pytest.mark.parametrize("name", ["no", "5", "null", "1.5"])
def test_a_name_that_is_no_text_is_named_by_its_path(
    configured: Callable[[str], ArcticRunCoordinator], name: str
) -> None:
    """YAML reads ``no:`` as a truth and ``5:`` as a number."""
    with pytest.raises(InvalidDefinition, match=r"run_coordinator\.config\.groups: got"):
        configured(f"    groups: {{{name}: {{limit: 1}}}}\n")


def test_with_a_wrong_rule_nothing_of_the_run_queue_works(
    make_queue: Callable[..., RunQueue],
) -> None:
    """Neither a submission nor a pass of the daemon; it is refused each time it is requested."""
    queue = make_queue("sqlite", {**OURS, "config": {"groups": {"a": {"limit": -1}}}})
    for _ in range(2):
        with pytest.raises(InvalidDefinition, match=r"run_coordinator\.config\.groups\.a\.limit"):
            queue.submit("load")
        with pytest.raises(InvalidDefinition):
            queue.iterate()
        with pytest.raises(InvalidDefinition):
            queue.instance.get_concurrency_config()
    runs = queue.instance.get_runs()
    assert [run.status for run in runs] == [Status.FAILURE] * 2
    assert queue.launched == []


# What would take the place of rules.


@pytest.mark.parametrize(
    ("runs", "named"),
    [
        ({"max_concurrent_runs": 3}, "concurrency.runs.max_concurrent_runs"),
        ({"max_concurrent_runs": 0}, "concurrency.runs.max_concurrent_runs"),
        ({"tag_concurrency_limits": []}, "concurrency.runs.tag_concurrency_limits"),
        ({"max_concurrent_runs": 3, "tag_concurrency_limits": [{"key": "a", "limit": 1}]},
         "concurrency.runs.max_concurrent_runs and concurrency.runs.tag_concurrency_limits"),
    ],
)  # fmt: skip
def test_what_would_replace_the_limits_is_refused_with_the_mend(
    make_queue: Callable[..., RunQueue], runs: dict[str, Any], named: str
) -> None:
    """At the first access and at every later one; nothing is submitted and nothing starts."""
    rules = {"groups": {"a": {"limit": 1, "match": {"job": "*"}}}}
    queue = make_queue("sqlite", {**OURS, "config": rules}, concurrency={"runs": runs})
    message = (
        f"dagster.yaml: {named} would silently override ArcticRunCoordinator, and all "
        "its rules with it. Move it to run_coordinator.config, under the same name; "
        "concurrency.pools may stay"
    )
    instance: Any = queue.instance
    requested: list[Callable[[], object]] = [
        lambda: instance.run_coordinator.get_run_queue_config(),
        queue.instance.get_concurrency_config,
        lambda: queue.submit("load"),
        queue.iterate,
    ]
    for call in (*requested, *requested):
        with pytest.raises(ConfigurationError) as refusal:
            call()
        assert str(refusal.value) == message
    assert {run.status for run in queue.instance.get_runs()} == {Status.FAILURE}
    assert queue.launched == []


def test_limits_of_pools_may_stay(make_queue: Callable[..., RunQueue]) -> None:
    """They count beside the rules."""
    rules = {"groups": {"a": {"limit": 1, "match": {"job": "*"}}}}
    pools = {"pools": {"default_limit": 1, "granularity": "run"}}
    queue = make_queue("sqlite", {**OURS, "config": rules}, concurrency=pools)
    first, second = queue.submit("load"), queue.submit("bill")
    assert queue.iterate() == [first.run_id]
    assert queue.iterate() == []
    queue.report(first, Status.SUCCESS)
    assert queue.iterate() == [second.run_id]
    assert queue.instance.get_concurrency_config().pool_config.default_pool_limit == 1
