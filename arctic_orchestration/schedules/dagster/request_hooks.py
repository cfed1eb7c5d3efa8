"""Calls request hooks, and reads what they return."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import dagster as dg

from arctic_orchestration.event_log.escaping import escaped, is_storable
from arctic_orchestration.event_log.event import Event, EventKind
from arctic_orchestration.schedules.request_hooks import Answer, Question
from arctic_orchestration.schedules.schedule import Schedule, refused_tag
from arctic_orchestration.specification import json_form

#: A call that takes longer fails its job: other jobs wait for it.
LONGEST_SECONDS = 10.0
#: fields of a run request that the schedule decides, not its hook
_OF_SCHEDULE = (
    "job_name", "asset_selection", "asset_check_keys", "stale_assets_only", "run_key",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class RequestContext:
    """What a request hook is given: the job that is about to be launched.

    Attributes:
        schedule: the name of the schedule.
        job_id: the job.
        fired_at: when its trigger was satisfied.
        trigger: what fired, for people.
        partition: the partition of the target, if the job has one.
        partition_range: its first and last partition, if it has some.
        events: what caused it, in the order of arrival: arrivals, runs, ticks.
        properties: the properties of the schedule.
        run_config: the configuration that the schedule declares.
        tags: the tags that the schedule declares.
        instance: Dagster's instance.
        repository: the loaded code location.
        shadowed: the schedule only decides, beside Dagster's own (``arctic adopt --shadow``): no
            run is requested, whatever the hook returns.
        location: Dagster's name of the code location; None: Dagster does not say it.
    """

    schedule: str
    job_id: str
    fired_at: datetime | None
    trigger: str
    partition: str | None
    partition_range: tuple[str, str] | None
    events: tuple[Event, ...]
    properties: Mapping[str, Any]
    run_config: Mapping[str, Any]
    tags: Mapping[str, str]
    instance: dg.DagsterInstance
    repository: dg.RepositoryDefinition
    shadowed: bool = False
    location: str | None = None

    @property
    def tick(self) -> datetime | None:
        """The last moment of a clock among the events, or None."""
        ticks = [event.at for event in self.events if event.kind is EventKind.TICK]
        return max(ticks, default=None)


class CodeHooks:
    """The request hooks of the declared schedules."""

    def __init__(
        self,
        schedules: Sequence[Schedule],
        instance: Callable[[], dg.DagsterInstance],
        repository: dg.RepositoryDefinition,
        location: str | None = None,
    ) -> None:
        self._hooks = {one.name: one.request for one in schedules if one.request is not None}
        self._instance = instance
        self._repository = repository
        self._location = location

    @property
    def names(self) -> Sequence[str]:
        return list(self._hooks)

    def ask(self, question: Question) -> Answer:
        """Calls the hook in a thread of its own, and waits for it only so long."""
        hook = self._hooks[question.schedule]
        context = self._context(question)
        answers: list[Answer] = []

        def call() -> None:
            try:
                answers.append(_storable(_read(hook(context), question)))
            except BaseException as error:
                # Also SystemExit, which would end the thread without an answer.
                answers.append(Answer(problem=escaped(f"its request hook failed: {error!r}")))

        thread = threading.Thread(target=call, daemon=True, name=f"request {question.job_id}")
        thread.start()
        thread.join(LONGEST_SECONDS)
        if not answers:
            text = f"its request hook took longer than {LONGEST_SECONDS:g} s"
            return Answer(problem=text)
        return answers[0]

    def _context(self, question: Question) -> RequestContext:
        start, end = question.partition_start, question.partition_end
        has_range = start is not None and end is not None
        return RequestContext(
            schedule=question.schedule,
            job_id=question.job_id,
            fired_at=question.satisfied_at,
            trigger=question.trigger,
            partition=start if start == end else None,
            partition_range=(str(start), str(end)) if has_range else None,
            events=tuple(question.events),
            properties=question.properties,
            run_config=question.run_config,
            tags=question.tags,
            instance=self._instance(),
            repository=self._repository,
            shadowed=question.shadowed,
            location=self._location,
        )


def _read(returned: object, question: Question) -> Answer:
    """Reads what a hook returned.

    Raises a ValueError for what it may not decide.
    """
    if returned is None:
        return Answer(run_config=question.run_config, tags=question.tags)
    if isinstance(returned, dg.SkipReason):
        return Answer(skipped=escaped(returned.skip_message or "it gave no reason"))
    if isinstance(returned, dg.RunConfig):
        config: Any = returned
        return Answer(run_config=config.to_config_dict(), tags=question.tags)
    if isinstance(returned, Mapping):
        return Answer(run_config=dict(returned), tags=question.tags)
    if not isinstance(returned, dg.RunRequest):
        raise ValueError(
            f"it returned {type(returned).__name__}, expected a RunRequest, a SkipReason, a run "
            "configuration or None"
        )
    given = [name for name in _OF_SCHEDULE if getattr(returned, name)]
    if given:
        raise ValueError(f"its RunRequest has {', '.join(given)}, which the schedule decides")
    start, end = question.partition_start, question.partition_end
    if returned.partition_key not in (None, start if start == end else None):
        raise ValueError(
            f"its RunRequest is of partition {returned.partition_key}, the job of "
            f"{start or 'none'}: a schedule gets its partitions from its trigger"
        )
    tags = {**question.tags, **returned.tags}
    for key in returned.tags:
        if (expected := refused_tag(key)) is not None:
            raise ValueError(f"tag {key}: expected {expected}")
    return Answer(run_config=dict(returned.run_config or question.run_config), tags=tags)


def _storable(answer: Answer) -> Answer:
    """Returns the answer as it will be read again.

    Raises a ValueError for what a database cannot hold.
    """
    try:
        run_config = json_form(answer.run_config)
    except ValueError as error:
        raise ValueError(f"run_config: expected {error}") from None
    for key, value in answer.tags.items():
        if not (is_storable(key) and is_storable(value)):
            raise ValueError(f"tag {key!r}: got {value!r}, expected text that a database can hold")
    return replace(answer, run_config=run_config)
