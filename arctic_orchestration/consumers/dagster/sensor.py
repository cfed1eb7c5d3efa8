"""A sensor that runs a job or assets for each new partition of a consumer.

A schedule (``on.partitions``, ``partitions: each``) also starts a run for each partition, but its
work is done when the run has started: a failed run is an event like any other. This sensor delivers
a partition until a run of it has succeeded, or its attempts are used up, which depends on the
consumer's working set and not on waiting jobs. So it is a sensor of its own, over the same leases
as a program's block.
"""

import logging
import re
from collections.abc import Callable
from typing import Any

import dagster as dg

from arctic_orchestration import code_servers
from arctic_orchestration.consumers.dagster.event_source import log_of
from arctic_orchestration.consumers.dagster.partition_consumer import PartitionConsumer
from arctic_orchestration.consumers.partition import ConsumedPartition, Where, matcher
from arctic_orchestration.consumers.partition_runs import Delivery, Follower
from arctic_orchestration.dagster_internals import NamedTargetsSensor
from arctic_orchestration.errors import ArcticError, InvalidDefinition, InvalidInput
from arctic_orchestration.run_tags import check_storable

CONSUMER_TAG = "arctic/consumer"
PARTITION_TAG = "arctic/partition"
ATTEMPT_TAG = "arctic/attempt"
TOKEN_TAG = ".dagster/arctic_consumer_token"

#: the minimum duration of a lease, in ticks
_TICKS = 3

_log = logging.getLogger("arctic.consumers")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_]")
_A_NAME = re.compile(r"[A-Za-z0-9_]+")
#: the maximum length of an error's text
_LETTERS = 1_000
_TARGET = "a job, its name, assets, or a selection of assets"

MakeRequest = Callable[[ConsumedPartition], dg.RunRequest]


def consumer_sensor(
    consumer: PartitionConsumer,
    *,
    target: Any,
    name: str | None = None,
    at_once: int = 10,
    where: Where | None = None,
    request: MakeRequest | None = None,
    interval_seconds: int = 5,
    default_status: dg.DefaultSensorStatus = dg.DefaultSensorStatus.RUNNING,
) -> dg.SensorDefinition:
    """Creates a sensor that starts a run of ``target`` for each new partition of a consumer.

    A successful run acknowledges its partition. A failed or canceled run counts as an attempt: the
    partition rests, is delivered again, and after its last attempt is discarded and listed. While
    the run waits or works, the sensor renews its lease.

    A partitioned target runs for the partition's key; any other target gets the key in the tag
    ``arctic/partition``. A run of assets names them and their checks, unless the request names some
    of them. Dagster's own retries are off for these runs: the consumer retries.

    Args:
        consumer: the consumer of the partitions; the sensor's first tick registers it.
        target: a job, its name, assets, or a selection of assets.
        name: the sensor's name; none: the consumer's name.
        at_once: the maximum number of partitions with a live run.
        where: a filter of partitions; see :meth:`PartitionConsumer.consume`.
        request: creates the run request of a partition, with a run configuration or tags of its
            own; the run key and the tags of the consumer are added to it.
        interval_seconds: the minimum interval between two ticks.
        default_status: whether it runs without being started.

    Errors:
        InvalidDefinition: names each invalid value.
    """
    _check(consumer, at_once, where, interval_seconds)
    _check_for_dagster(target, name, request, default_status)
    following = _Following(consumer, at_once, where, request)
    by_name: Any = {"job_name": target} if isinstance(target, str) else {"target": target}
    try:
        return NamedTargetsSensor(
            name=_NOT_IN_NAMES.sub("_", consumer.name) if name is None else name,
            evaluation_fn=following.evaluate,
            minimum_interval_seconds=interval_seconds,
            default_status=default_status,
            description=f"Runs each new partition of {consumer.spec.asset} for consumer "
            f"{consumer.name}.",
            **by_name,
        )
    except Exception as error:
        # All else was checked: Dagster has no clear error for an invalid target.
        raise InvalidDefinition([InvalidInput("target", target, f"{_TARGET}: {error}")]) from error


def _confined(where: Where | None) -> Where | None:
    """Returns a filter that leaves out a partition for which the user's function raises."""
    if not callable(where):
        return where
    reported: set[str] = set()

    def wanted(partition: ConsumedPartition) -> bool:
        # The others must go on.
        try:
            return bool(where(partition))
        except Exception as error:
            if partition.key not in reported:
                reported.add(partition.key)
                _log.warning("where failed for partition %s, which waits: %r", partition.key, error)
            return False

    return wanted


def _check(consumer: object, at_once: object, where: Any, interval_seconds: object) -> None:
    problems = []
    if not isinstance(consumer, PartitionConsumer):
        problems.append(InvalidInput("consumer", consumer, "a PartitionConsumer"))
    for field, value in (("at_once", at_once), ("interval_seconds", interval_seconds)):
        if type(value) is not int or value < 1:
            problems.append(InvalidInput(field, value, "a whole number of at least 1"))
    try:
        matcher(where)
    except InvalidInput as problem:
        problems.append(problem)
    if not problems and isinstance(consumer, PartitionConsumer):
        least = _TICKS * int(str(interval_seconds))
        if consumer.spec.lease.total_seconds() < least:
            field = f"PartitionConsumer({consumer.name}).lease"
            expected = f"at least {least} s: the sensor renews it every {interval_seconds} s"
            problems.append(InvalidInput(field, consumer.spec.lease, expected))
    if problems:
        raise InvalidDefinition(problems)


def _check_for_dagster(target: Any, name: Any, request: object, default_status: object) -> None:
    problems = []
    if target is None or (isinstance(target, str | list | tuple) and not target):
        problems.append(InvalidInput("target", target, _TARGET))
    if name is not None and (not isinstance(name, str) or not _A_NAME.fullmatch(name)):
        problems.append(InvalidInput("name", name, "the characters A-Z a-z 0-9 _"))
    if request is not None and not callable(request):
        expected = "a function of a ConsumedPartition that returns a dg.RunRequest"
        problems.append(InvalidInput("request", request, expected))
    if not isinstance(default_status, dg.DefaultSensorStatus):
        problems.append(InvalidInput("default_status", default_status, "a dg.DefaultSensorStatus"))
    if problems:
        raise InvalidDefinition(problems)


class _Following:
    """The work of one consumer's sensor, with its cache from tick to tick."""

    def __init__(
        self,
        consumer: PartitionConsumer,
        at_once: int,
        where: Where | None,
        request: MakeRequest | None,
    ) -> None:
        self._consumer = consumer
        self._at_once = at_once
        self._where = _confined(where)
        self._request = request
        self._followers: dict[tuple[str, ...], Follower] = {}

    def evaluate(self, context: dg.SensorEvaluationContext) -> dg.SensorResult:
        try:
            follower = self._follower(context)
            followed = follower.tick()
            requests = [
                request
                for delivery in followed.deliveries
                if (request := self._request_or_refusal(delivery, follower, context)) is not None
            ]
        except ArcticError as error:
            # Taken partitions are in the state database: the next tick requests their runs.
            context.log.warning("the next tick retries: %s", error)
            return dg.SensorResult(skip_reason=str(error), cursor=context.cursor)
        counts = {what: number for what, number in sorted(followed.counts.items()) if number}
        summary = ", ".join(f"{what} {number}" for what, number in counts.items())
        if requests:
            return dg.SensorResult(run_requests=requests, cursor=summary)
        # The filter of the daemon's log recognizes the text by its beginning.
        text = f"consumer {self._consumer.name}: {summary or 'nothing new'}"
        return dg.SensorResult(skip_reason=text, cursor=summary or context.cursor)

    def _request_or_refusal(
        self, delivery: Delivery, follower: Follower, context: dg.SensorEvaluationContext
    ) -> dg.RunRequest | None:
        # One refused request would fail this tick and all ticks after it.
        try:
            return self._run_request(delivery, context)
        except Exception as error:
            problem = " ".join(str(error).split())[:_LETTERS]
            reason = f"its run cannot be requested: {problem}"
            context.log.error("%s: %s", delivery.partition.key, reason)
            follower.refuse(delivery, reason)
            return None

    def _run_request(
        self, delivery: Delivery, context: dg.SensorEvaluationContext
    ) -> dg.RunRequest:
        partition = delivery.partition
        repository = context.repository_def
        assert repository is not None
        sensor = repository.get_sensor_def(context.sensor_name)
        job = repository.get_job(str(sensor.job_name))
        made = self._request(partition) if self._request is not None else dg.RunRequest()
        is_partitioned = job.partitions_def is not None
        _check_request(made, str(sensor.job_name), is_partitioned=is_partitioned)
        selected = job
        if made.entity_keys:
            selected = job.get_subset(
                asset_selection=set(made.asset_selection or ()),
                asset_check_selection=None
                if made.asset_check_keys is None
                else set(made.asset_check_keys),
            )
        elif sensor.has_anonymous_job:
            made = _of_all_assets(made, job)
        if made.partition_key is None and is_partitioned:
            made = made.with_replaced_attrs(partition_key=partition.key)
        made = made.with_replaced_attrs(
            run_key=delivery.run_key,
            tags={
                **made.tags,
                CONSUMER_TAG: self._consumer.name,
                PARTITION_TAG: partition.key,
                ATTEMPT_TAG: str(partition.attempt),
                TOKEN_TAG: str(delivery.token),
                "dagster/max_retries": "0",
            },
        )
        if is_partitioned:
            made = made.with_resolved_tags_and_config(
                target_definition=job,
                dynamic_partitions_requests=[],
                dynamic_partitions_store=context.instance,
            )
        check_storable({**job.run_tags, **made.tags})
        # The daemon would detect this after the tick, and drop the other requests, too.
        dg.validate_run_config(selected, made.run_config)
        # It gets all requests of a tick as one text.
        dg.serialize_value(made)
        return made

    def _follower(self, context: dg.SensorEvaluationContext) -> Follower:
        settings = self._consumer.settings
        storage = code_servers.storage_of(context)
        key = (settings.database_url, settings.cluster, storage)
        if key not in self._followers:
            log = log_of(context.instance, [self._consumer.spec.asset])
            origin = context.code_location_origin
            # Sensors with one name in two locations have leases of their own.
            location = origin.location_name if origin else "local"
            self._followers[key] = Follower(
                engine=self._consumer.engine_on(context.instance, log),
                owner=f"sensor {context.sensor_name} of {location}",
                runs=log,
                at_once=self._at_once,
                where=self._where,
            )
        follower = self._followers[key]
        # The instance of a tick ends with the tick; the log has connections of its own.
        follower.engine.existing = self._consumer.existing_in(lambda: context.instance)
        return follower


def _of_all_assets(request: dg.RunRequest, job: dg.JobDefinition) -> dg.RunRequest:
    """Returns the request with the assets of the target: Dagster's nameless job would show none.

    A named job is the target itself; a selection of its assets would omit its configuration and its
    hooks.
    """
    own = [layer.assets_def for layer in job.asset_layer.data]
    return request.with_replaced_attrs(
        asset_selection=sorted({key for one in own for key in one.keys}),
        asset_check_keys=sorted({key for one in own for key in one.check_keys}),
    )


def _check_request(made: object, job_name: str, *, is_partitioned: bool) -> None:
    """Checks that Dagster creates one run of the sensor's target for a request.

    Errors:
        InvalidInput: each tick would refuse it, or create no run of it.
    """
    if not isinstance(made, dg.RunRequest):
        raise InvalidInput("request", made, "a function that returns a dg.RunRequest")
    if made.job_name not in (None, job_name):
        raise InvalidInput("request.job_name", made.job_name, f"none, or the target: {job_name}")
    if made.partition_key is not None and not is_partitioned:
        expected = "none: the target is not partitioned, and a tag names its partition"
        raise InvalidInput("request.partition_key", made.partition_key, expected)
    if made.stale_assets_only:
        expected = "False: where nothing is stale no run would end the delivery"
        raise InvalidInput("request.stale_assets_only", True, expected)
    if made.requires_backfill_daemon():
        expected = "none: a delivery is one run, and no backfill"
        raise InvalidInput("request.asset_graph_subset", made.asset_graph_subset, expected)
