"""``ArcticRunCoordinator``: Dagster's run queue with rules."""

import logging
from collections.abc import Mapping
from contextlib import closing
from typing import Any, Self

from dagster import Any as AnyConfig
from dagster import (
    DagsterInstance,
    DagsterRun,
    DagsterRunStatus,
    Field,
    IntSource,
    Noneable,
    QueuedRunCoordinator,
    SubmitRunContext,
)

from arctic_orchestration import idle_ticks, migration_scripts, postgres_connections
from arctic_orchestration.clock import utc_now
from arctic_orchestration.dagster_internals import (
    ConfigurableClassData,
    RunQueueConfig,
    in_daemon,
    registered_instance,
)
from arctic_orchestration.errors import ConfigurationError
from arctic_orchestration.run_queue import waits
from arctic_orchestration.run_queue.dagster import wakeups
from arctic_orchestration.run_queue.dagster.caller import Asker, asker
from arctic_orchestration.run_queue.dagster.level_control import take_ages
from arctic_orchestration.run_queue.dagster.passes import DaemonPasses
from arctic_orchestration.run_queue.dagster.submission import facts_of
from arctic_orchestration.run_queue.limits import shown_limits
from arctic_orchestration.run_queue.rules import KINDS, Rules
from arctic_orchestration.run_queue.tags import QUEUED_AT, standing_of, tags_for
from arctic_orchestration.run_queue.windows import OpenWindows
from arctic_orchestration.settings import Settings
from arctic_orchestration.state.database import Database

#: Settings of ``concurrency.runs`` that override the limits of a run coordinator.
_REPLACING = ("max_concurrent_runs", "tag_concurrency_limits")

_log = logging.getLogger("dagster.run_coordinator.arctic")


class ArcticRunCoordinator(QueuedRunCoordinator[Any]):
    """``QueuedRunCoordinator`` with the rules of ``run_queue.rules``.

    ``dagster.yaml`` names it, and Dagster's own daemon works with it. A run gets tags when it is
    submitted (``run_queue.tags``), and limits on these tags decide at each pass of the daemon what
    may start (``run_queue.plan``). Runs without such tags, and all runs if there are no rules, are
    treated as by the stock class.

    Errors:
        InvalidDefinition: names each invalid field of the configuration.
        ConfigurationError: ``concurrency.runs`` of ``dagster.yaml`` would replace the limits.
    """

    def __init__(
        self,
        *,
        rules: Rules | None = None,
        inst_data: ConfigurableClassData | None = None,
        **stock: Any,
    ) -> None:
        super().__init__(inst_data=inst_data, **stock)
        self._rules = rules or Rules()
        self._given = frozenset(name for name, value in stock.items() if value is not None)
        self._windows = OpenWindows()
        self._passes: DaemonPasses | None = None
        self._limits: list[dict[str, Any]] | None = None
        # On a second access Dagster returns a coordinator whose registration failed.
        self._refused: ConfigurationError | None = None

    @property
    def rules(self) -> Rules:
        """The configured rules."""
        return self._rules

    @property
    def stock_limits(self) -> list[dict[str, Any]]:
        """Dagster's own ``tag_concurrency_limits``, as configured."""
        return [dict(limit) for limit in super().get_run_queue_config().tag_concurrency_limits]

    @property
    def max_concurrent_runs(self) -> int:
        """Dagster's own limit on all runs; -1 is none."""
        return super().get_run_queue_config().max_concurrent_runs

    @classmethod
    def config_type(cls) -> Any:
        """Returns the stock class's configuration, and the rules, which are checked separately."""
        stock: Any = super().config_type()
        # Checked by Rules.parse, which reports paths.
        rules = {kind: Field(Noneable(AnyConfig), is_required=False) for kind in KINDS}
        return {**stock, **rules, "seconds_per_level": Field(IntSource, is_required=False)}

    @classmethod
    def from_config_value(
        cls, inst_data: ConfigurableClassData, config_value: Mapping[str, Any]
    ) -> Self:
        """Makes a coordinator from the configuration in ``dagster.yaml``."""
        ours = {*KINDS, "seconds_per_level"}
        stock = {key: value for key, value in config_value.items() if key not in ours}
        return cls(rules=Rules.parse(config_value), inst_data=inst_data, **stock)

    def register_instance(self, instance: Any) -> None:
        """Registers the instance, whose settings must not override the limits."""
        runs = (instance.get_settings("concurrency") or {}).get("runs") or {}
        replaced = [name for name in _REPLACING if runs.get(name) is not None]
        # Without rules, as with the stock class: refused if both set limits.
        if replaced and not (self._rules.are_none and self._given.isdisjoint(_REPLACING)):
            named = " and ".join(f"concurrency.runs.{name}" for name in replaced)
            self._refused = ConfigurationError(
                f"dagster.yaml: {named} would silently override ArcticRunCoordinator, "
                "and all its rules with it. Move it to run_coordinator.config, under the same "
                "name; concurrency.pools may stay"
            )
            raise self._refused
        super().register_instance(instance)
        idle_ticks.install()
        wakeups.install()
        if in_daemon():
            postgres_connections.reuse_in_instance(instance)
            migration_scripts.remember()
            if self._rules.are_none:
                _forget_waits()
            if not self._rules.ages:
                take_ages(instance)

    def get_run_queue_config(self) -> RunQueueConfig:
        """Returns the limits of this pass for the daemon, and the rules for other callers."""
        if self._refused is not None:
            raise self._refused
        stock = super().get_run_queue_config()
        if self._rules.are_none:
            return stock
        return stock._replace(tag_concurrency_limits=self._limits_for(asker()))

    def _limits_for(self, who: Asker) -> list[dict[str, Any]]:
        now = utc_now()
        if who is Asker.ANYBODY:
            return shown_limits(self._rules, self.stock_limits, self._windows, now)
        if who is Asker.NEW_PASS or self._limits is None:
            if self._passes is None:
                self._passes = DaemonPasses(
                    self._registered,
                    self._rules,
                    stock=self.stock_limits,
                    max_concurrent_runs=self.max_concurrent_runs,
                )
            self._limits = self._passes.limits(now)
        return self._limits

    @property
    def _registered(self) -> DagsterInstance:
        return registered_instance(self)

    def submit_run(self, context: SubmitRunContext) -> DagsterRun:
        """Adds the tags of the rules to the run and queues it.

        A run that was submitted before keeps its tags.
        """
        if self._refused is not None:
            raise self._refused
        run = context.dagster_run
        ruled = not self._rules.are_none or QUEUED_AT in run.tags
        if ruled and run.status == DagsterRunStatus.NOT_STARTED:
            facts = facts_of(context)
            standing = standing_of(facts, self._rules)
            tags = tags_for(facts, standing, self._rules, utc_now())
            if tags:
                self._registered.add_run_tags(run.run_id, tags)
            for problem in standing.problems:
                _log.warning("run %s: %s", run.run_id, problem)
                self._registered.report_engine_event(f"Problem in the run queue: {problem}", run)
            submitted = self._registered.get_run_by_id(run.run_id)
            context = SubmitRunContext(submitted or run, context.workspace)
        queued = super().submit_run(context)
        wakeups.queue.wake()
        return queued

    def dispose(self) -> None:
        """Closes all connections."""
        if self._passes is not None:
            self._passes.close()
        super().dispose()


def _forget_waits() -> None:
    """Deletes what passes reported under rules that are gone: without rules there are no passes."""
    try:
        settings = Settings.from_environment()
        if Database.is_missing(settings.database_url):
            return
        with (
            closing(Database.open(settings.database_url, busy_seconds=5)) as database,
            database.begin() as tx,
        ):
            waits.forget_all(tx, settings.cluster)
    except Exception:
        # Runs start all the same.
        _log.exception("what runs waited for under earlier rules is still shown")
