"""Decides which arrivals count: by asset checks, data version and origin in a backfill.

An arrival does not count while a blocking check has failed, or is planned and has not ended. It is
deferred and counts once the check passes. A trigger may require more checks.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence

from arctic_orchestration.event_log.arrival_checks import ArrivalChecks, fails, latest
from arctic_orchestration.event_log.event import Event, EventKind
from arctic_orchestration.event_log.feed import ArrivalLookup
from arctic_orchestration.schedules.target_partitions import Deferred, Match
from arctic_orchestration.schedules.targets import Targets

#: every check of the asset
_ALL = ("*",)


class CountedArrivals:
    """Sorts the arrivals of one transaction into counted, deferred and dropped ones."""

    def __init__(
        self,
        lookup: ArrivalLookup,
        targets: Targets | None,
        replacing: Callable[[Sequence[Match]], Collection[int]],
    ) -> None:
        """Takes the lookups, and what drops the stored arrivals that some arrivals replace."""
        self._lookup = lookup
        self._targets = targets
        self._replacing = replacing
        self._known: dict[str, Collection[str] | None] = {}

    def sort(self, matches: Sequence[Match]) -> tuple[list[Match], list[Deferred]]:
        """Returns the arrivals that count, in their order, and those that wait for a check.

        Arrivals that a trigger drops for good are in neither list.
        """
        counted, unchanged = self._without_backfills(matches), self._unchanged(matches)
        wanted = {
            match.event.storage_id: match.event for match in counted if self._may_defer(match)
        }
        checks = self._lookup.checks_of(list(wanted.values())) if wanted else {}
        replacing = self._replacing([match for match in counted if id(match) in unchanged])
        passed: list[Match] = []
        deferred: dict[int, Deferred] = {}
        by_version: dict[tuple[object, ...], list[int]] = defaultdict(list)
        for match in counted:
            if id(match) in unchanged:
                # The last change may wait for a check: this arrival takes its place.
                replaced = [deferred.pop(one) for one in by_version.pop(_version_of(match), ())]
                if not replaced and id(match) not in replacing:
                    continue
            number = match.event.storage_id
            reason = self._waits(match, checks[number]) if number in wanted else None
            if reason is None:
                passed.append(match)
                continue
            deferred[id(match)] = Deferred(match=match, waits_for="checks", reason=reason)
            by_version[_version_of(match)].append(id(match))
        return passed, list(deferred.values())

    def _unchanged(self, matches: Sequence[Match]) -> set[int]:
        """Returns the identities of new arrivals that do not count without a change."""
        compared = [
            match
            for match in matches
            # A deferred one was a change when it arrived.
            if match.source.only_changed and _is_arrival(match.event) and match.number is None
        ]
        if not compared:
            return set()
        changed = self._lookup.changed([match.event for match in compared])
        return {id(match) for match in compared if match.event.storage_id not in changed}

    def _without_backfills(self, matches: Sequence[Match]) -> list[Match]:
        runs = {m.event.run_id for m in matches if m.source.ignores_backfills} - {None}
        if not runs:
            return list(matches)
        made = self._lookup.backfills_of([run for run in runs if run is not None])
        return [m for m in matches if not m.source.ignores_backfills or m.event.run_id not in made]

    def _may_defer(self, match: Match) -> bool:
        """Returns whether checks may defer an arrival."""
        if not _is_arrival(match.event):
            return False
        if match.source.checks:
            return True
        if match.event.run_id is None:
            return False
        blocking = self._blocking(match.event.subject)
        return blocking is None or bool(blocking)

    def _blocking(self, asset: str) -> Collection[str] | None:
        """Returns the blocking checks of an asset, or None if they are unknown."""
        if self._targets is None:
            return None
        if asset not in self._known:
            self._known[asset] = self._targets.blocking_checks(asset)
        return self._known[asset]

    def _waits(self, match: Match, checks: ArrivalChecks) -> str | None:
        """Returns what an arrival waits for, or None if it counts."""
        evaluated = {one.check: one for one in latest(checks.evaluations)}
        blocking = self._blocking(match.event.subject)
        needed = set(checks.planned if blocking is None else checks.planned & frozenset(blocking))
        needed.update(checks.blocked_by)
        if match.source.checks == _ALL:
            needed.update(checks.planned, (check for check in evaluated if check))
        else:
            needed.update(match.source.checks)
        failed = sorted(name for name in needed if name in evaluated and fails(evaluated[name]))
        missing = sorted(name for name in needed if name not in evaluated)
        if failed:
            return f"check {', '.join(failed)} has failed"
        return f"check {', '.join(missing)} has not been evaluated" if missing else None


def _is_arrival(event: Event) -> bool:
    return event.kind is EventKind.PARTITION


def _version_of(match: Match) -> tuple[object, ...]:
    """Returns what two arrivals at one leaf of the same partition and data version share."""
    event = match.event
    return match.stored.id, match.leaf, event.subject, event.partition, event.data_version
