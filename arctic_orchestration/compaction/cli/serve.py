"""``arctic compaction tick`` and ``serve``: planning, committing and housekeeping, manually."""

import logging
import time
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arctic_orchestration.clock import utc_now
from arctic_orchestration.compaction.cli.context import (
    Opened,
    age_option,
    opened_compaction,
    positive_duration,
    working,
)
from arctic_orchestration.compaction.planning.scope import EVERYTHING, Mode, Scope
from arctic_orchestration.console.display import console, counted, moment, print_json
from arctic_orchestration.console.signals import on_stop_signal
from arctic_orchestration.console.state import JsonOption
from arctic_orchestration.console.terminal import escape, json_text
from arctic_orchestration.errors import ArcticError, InvalidInput
from arctic_orchestration.quantities import format_duration, iso

if TYPE_CHECKING:
    from arctic_orchestration.compaction.service import CompactionCounts

#: the delay until a signal is handled
_SLICE_SECONDS = 0.2


RetentionOption = Annotated[
    str, typer.Option(help="How long records, and tasks that ended, are kept; 1d at least.")
]


TablesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--tables",
        metavar="PATTERN",
        help="Plan the tables that match: lake.flights, 'lake.*', '*' for all; repeatable.",
    ),
]
ModeOption = Annotated[
    str,
    typer.Option(
        metavar="MODE",
        help="observe: plan and show, change nothing. run: compact the tables.",
    ),
]


def tick(
    tables: TablesOption = None,
    mode: ModeOption = Mode.OBSERVE.value,
    retention: RetentionOption = "30d",
    as_json: JsonOption = False,
) -> None:
    """Run one round of planning, committing and clean-up."""
    scope = Scope.of(tables or (), mode, field="--{}")
    kept = _retention(retention)
    with opened_compaction(makes=True) as state:
        from arctic_orchestration.compaction.service import CompactionService

        engine = CompactionService(state.database, state.catalog, retention=kept, scope=scope)
        with working("looking at the tables"):
            counts = engine.tick(utc_now())
    if as_json:
        print_json(asdict(counts))
    else:
        console().print(escape(counts_text(counts) or "nothing was to be done"))
        if counts.unmatched:
            console().print(escape(_unmatched_text(counts)))


def serve(
    tables: TablesOption = None,
    mode: ModeOption = Mode.OBSERVE.value,
    every: Annotated[str, typer.Option(help="From the end of a round to the next.")] = "10s",
    retention: RetentionOption = "30d",
    as_json: JsonOption = False,
) -> None:
    """Run rounds until stopped, where no sensor ticks.

    A line is printed for each round that did something; with --json, a document on a line.
    """
    scope = Scope.of(tables or (), mode, field="--{}")
    pause = positive_duration("--every", every)
    kept = _retention(retention)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s")
    with opened_compaction(makes=True) as state:
        from arctic_orchestration.compaction.service import CompactionService

        engine = CompactionService(state.database, state.catalog, retention=kept, scope=scope)
        Service(state, engine, as_json, scope).run(pause)


def _retention(text: str) -> timedelta:
    from arctic_orchestration.compaction.commit.records import SHORTEST_RETENTION

    kept = age_option("--retention", text)
    if kept < SHORTEST_RETENTION:
        raise InvalidInput("--retention", text, "a duration of at least 1d")
    return kept


class Service:
    """Runs rounds in sequence."""

    def __init__(
        self, state: Opened, engine: Any, as_json: bool, scope: Scope = EVERYTHING
    ) -> None:
        self._scope = scope
        self._state = state
        self._engine = engine
        self._as_json = as_json
        self._ends_after_round = False
        #: the errors of the last round
        self._trouble: str | None = None
        self._unmatched: tuple[str, ...] = ()

    def run(self, pause: timedelta) -> None:
        """Runs rounds until it is stopped."""
        catalog = self._state.settings.catalog
        database = self._state.database.shown
        does = "tables " + ", ".join(self._scope.tables)
        if self._scope.mode is Mode.OBSERVE:
            does += " (only observed; --mode run compacts them)"
        self._report(
            "began",
            f"a round every {format_duration(pause)} for {does} of catalog {catalog}; "
            f"state in {database}",
            {
                "catalog": catalog,
                "database": database,
                "mode": self._scope.mode,
                "tables": self._scope.tables,
            },
        )
        with on_stop_signal(self.end):
            while not self._ends_after_round:
                self._round(utc_now())
                until = time.monotonic() + pause.total_seconds()
                # In short intervals, because a signal does not end a sleep.
                while not self._ends_after_round and (left := until - time.monotonic()) > 0:
                    time.sleep(min(left, _SLICE_SECONDS))
        self._report("ended", "ends", {})

    def end(self) -> None:
        """Ends it after the round in progress; returns at once."""
        self._ends_after_round = True

    def _round(self, now: datetime) -> None:
        try:
            counts = self._engine.tick(now)
        except ArcticError as error:
            # A later round completes what was begun. Reported once, not every few seconds.
            if str(error) != self._trouble:
                self._trouble = str(error)
                self._report("trouble", f"this round failed: {error}", {"text": str(error)})
            return
        if self._trouble is not None:
            self._trouble = None
            self._report("well", "rounds succeed again", {})
        if counts.unmatched != self._unmatched:
            self._unmatched = counts.unmatched
            if counts.unmatched:
                patterns = {"tables": counts.unmatched}
                self._report("unmatched", _unmatched_text(counts), patterns)
        text = counts_text(counts)
        if text:
            self._report("round", text, asdict(counts))

    def _report(self, event: str, text: str, document: dict[str, Any]) -> None:
        now = utc_now()
        if self._as_json:
            line = {"at": iso(now), "event": event, **document}
            print(json_text(line), flush=True)
        else:
            console().print(f"[dim]{moment(now)}[/] {escape(text)}")


def _unmatched_text(counts: "CompactionCounts") -> str:
    return f"--tables: no table matches {', '.join(counts.unmatched)}"


def counts_text(counts: "CompactionCounts") -> str:
    """Returns the result of a round, on one line; empty: nothing of interest."""
    committed, planned, cleaned = counts.committed, counts.planned, counts.cleaned
    kept = counts.upkeep
    parts = [
        (counts.lost, f"{counted(counts.lost, 'attempt')} lost"),
        (
            committed.snapshots,
            f"{counted(committed.committed, 'task')} committed in "
            f"{counted(committed.snapshots, 'snapshot')}",
        ),
        (committed.conflicts, f"{counted(committed.conflicts, 'task')} came too late"),
        (committed.wrong, f"{counted(committed.wrong, 'task')} with wrong outputs"),
        (committed.troubled, f"{counted(committed.troubled, 'table')} could not be committed to"),
        (planned.wanted, f"{counted(planned.wanted, 'task')} would be offered (--mode run)"),
        (planned.offered, f"{counted(planned.offered, 'task')} offered"),
        (planned.superseded, f"{planned.superseded} replaced"),
        (planned.blocked, f"{planned.blocked} without room in a queue"),
        (planned.refused, f"{counted(planned.refused, 'table')} refused"),
        (planned.troubled, f"{counted(planned.troubled, 'table')} could not be planned"),
        (cleaned.removed, f"outputs of {counted(cleaned.removed, 'attempt')} removed"),
        (cleaned.failed, f"outputs of {counted(cleaned.failed, 'attempt')} could not be removed"),
        (kept.done, f"{counted(kept.done, 'table')} with upkeep done"),
        (kept.failed, f"{counted(kept.failed, 'table')} whose upkeep failed"),
    ]
    return ", ".join(text for number, text in parts if number)
