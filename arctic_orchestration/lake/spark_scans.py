"""The scans of a table in Spark's event logs: their filters, and what they read.

Iceberg's runtime prints a scan's filters into Spark's plan, and counts files and bytes as metrics
of the plan. With ``spark.eventLog.enabled``, both are in the log that Spark's history server reads.
"""

import contextlib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from pyarrow.fs import FileInfo, FileSelector, FileSystem
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform

from arctic_orchestration.errors import LakeError
from arctic_orchestration.lake.clustering import CURVED, SORTED, type_of
from arctic_orchestration.lake.sort_columns import MOST_CURVED, parse_clustering

#: The codec of Arrow by the end of a log's name; Spark frames the others in its own way.
_CODECS = {"zstd": "zstd", "gz": "gzip"}
_OTHER_CODECS = ("lz4", "lzf", "snappy")
#: what the two kinds of lines with plans, and those with metrics, contain
_PLAN, _METRICS = b'"sparkPlanInfo"', b"SparkListenerDriverAccumUpdates"
_NODE = "BatchScan "
_FILES, _BYTES = "number of result data files", "total data file size (bytes)"
_SKIPPED = "number of skipped data files"
#: A text may have line breaks, and what else ends the filters.
_FILTERS = re.compile(
    r"filters=(.*?),? (?:runtimeFilters=(?:(?! groupedBy=)[^'])* groupedBy|groupedBy)=[^']*$",
    re.DOTALL,
)
_SNAPSHOT = re.compile(r"snapshotId=(\d+)")
#: Spark adds it to each comparison; it excludes next to nothing.
_NOT_NULL = re.compile(r"(?:^|(?<=, ))[^,()']+ IS NOT NULL(?:, |$)")
#: Quotes within a text are printed as they are.
_TEXT = re.compile(r"'.*?'(?=[,)]|$| AND | OR )", re.DOTALL)
_NOT = "NOT ("
_COMPARED = r"(?<![\w.])({names}) (?:=|<|<=|>|>=|IN|LIKE|IS NULL)(?= |$|[,)])"
_Log = tuple[FileSystem, FileInfo]
#: A column is worth sorting by if its scans are of this part of the first one's bytes.
_WORTH_IT = 0.25
#: Read at a time of a log, and requested at a time of a store.
_CHUNK, _BUFFER = 1 << 10, 1 << 20


@dataclass(kw_only=True)
class SparkScan:
    """A scan of a table; numbers are None where the log does not have them."""

    at: datetime
    #: as Iceberg prints it, without ``IS NOT NULL``; empty: none
    filter: str
    #: the columns that it compares
    columns: frozenset[str]
    snapshot_id: int | None
    files: int | None = None
    #: the data files that manifests excluded
    skipped: int | None = None
    bytes: int | None = None


@dataclass(kw_only=True)
class SparkScans:
    """What event logs say of a table."""

    #: oldest first
    scans: list[SparkScan] = field(default_factory=list)
    logs: int = 0
    #: logs that could not be read to their end, and why
    unread: list[str] = field(default_factory=list)


def spark_scans(
    table: Table,
    location: str,
    since: datetime = datetime.min.replace(tzinfo=UTC),
    track: Callable[[Sequence[_Log]], Iterable[_Log]] = iter,
) -> SparkScans:
    """Reads the scans of a table from an event log, or from all below a directory.

    Args:
        location: a path, or an address of a store that the table's properties give access to.
        since: earlier scans are left out, and logs that nothing was written to since then.
        track: reports the progress from log to log.

    Errors:
        LakeError: there is no log, or the store refuses.
    """
    files = [log for log in _files(table, location) if log[1].mtime >= since]
    found = SparkScans(logs=len(files))
    # A log may be in several files, in order, with the numbers of its executions.
    applications: dict[str, _Application] = {}
    for store, file in track(files):
        place = file.path.rpartition("/")[0]
        key = place if place.rpartition("/")[2].startswith("eventlog_v2_") else file.path
        application = applications.setdefault(key, _Application(table))
        try:
            application.read(_lines(store, file.path))
        except (OSError, pa.ArrowException, ValueError) as error:
            first = (str(error).splitlines() or [type(error).__name__])[0]
            found.unread.append(f"{file.path}: {first}")
    scans = (scan for one in applications.values() for scan in one.scans() if scan.at >= since)
    found.scans = sorted(scans, key=lambda scan: scan.at)
    return found


def bytes_by_column(scans: Iterable[SparkScan]) -> Counter[str]:
    """Returns how many bytes the scans read that compare a column."""
    found: Counter[str] = Counter()
    for scan in scans:
        # Columns of equal bytes stay in this order.
        for column in sorted(scan.columns):
            found[column] += scan.bytes or 0
    return found


def suggested_sort(table: Table, scans: Sequence[SparkScan]) -> str | None:
    """Returns the value of ``arctic.compaction.sort`` that suits the scans; None: none does.

    The columns whose scans would read most if nothing was skipped, without those that partition the
    table by their value. A curve where some scans compare another of them and not the first.
    """
    schema, spec = table.schema(), table.spec()
    partitioned = {one.source_id for one in spec.fields if one.transform == IdentityTransform()}
    weights = {
        name: weight
        for name, weight in _unskipped(table, scans).most_common()
        if weight
        and _is_written_as(name)
        and isinstance(type_of(schema, name), SORTED)
        and schema.find_field(name).field_id not in partitioned
    }
    if not weights:
        return None
    first, most = next(iter(weights.items()))
    names = [name for name, weight in weights.items() if weight >= _WORTH_IT * most]
    others = set(names) - {first}
    curved = [name for name in names if isinstance(type_of(schema, name), CURVED)][:MOST_CURVED]
    is_alone = any(scan.columns & others and first not in scan.columns for scan in scans)
    if is_alone and len(curved) > 1:
        return f"zorder({', '.join(curved)})"
    return ", ".join(names[:MOST_CURVED])


def _unskipped(table: Table, scans: Sequence[SparkScan]) -> Counter[str]:
    """Returns by column how many bytes its scans had read if the order excluded no file.

    Otherwise, the columns of the present order would seem to need none. Where a scan compares what
    the table is partitioned by, the partitions may have excluded its files.
    """
    sources = {one.source_id for one in table.spec().fields}
    partitioned = set(map(table.schema().find_column_name, sources))
    files = sum(scan.files or 0 for scan in scans)
    mean = sum(scan.bytes or 0 for scan in scans if scan.files) / files if files else 1.0
    found: Counter[str] = Counter()
    for scan in scans:
        weight: float = scan.bytes or 0
        if scan.files is not None and not scan.columns & partitioned:
            size = weight / scan.files if scan.files else mean
            weight = size * (scan.files + (scan.skipped or 0))
        for column in sorted(scan.columns):
            found[column] += round(weight)
    return found


def _is_written_as(name: str) -> bool:
    """Whether the property can name the column."""
    try:
        found = parse_clustering(name)
    except ValueError:
        return False
    return found is not None and [one.name for one in found.columns] == [name]


#: what a line of another form raises
_ODD = (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError)


class _Application:
    """The scans of one application of Spark."""

    def __init__(self, table: Table) -> None:
        self._name = ".".join(table.name())
        known = sorted(table.schema().column_names, key=len, reverse=True)
        self._compared = re.compile(_COMPARED.format(names="|".join(map(re.escape, known))))
        #: by the number of the execution, and the text of the node, which stays in new plans
        self._scans: dict[int, dict[str, SparkScan]] = defaultdict(dict)
        #: by the number of a metric, its scan and what it counts
        self._metrics: dict[int, tuple[SparkScan, str]] = {}
        self._values: dict[int, int] = {}

    def scans(self) -> Iterator[SparkScan]:
        # A plan may have the same scan twice, with metrics of their own.
        for number, value in self._values.items():
            scan, what = self._metrics[number]
            setattr(scan, what, (getattr(scan, what) or 0) + value)
        self._values.clear()
        for found in self._scans.values():
            yield from found.values()

    def read(self, lines: Iterable[bytes]) -> None:
        """Adds the scans of a log; a line of another form is passed over."""
        name = self._name.encode()
        for line in lines:
            with contextlib.suppress(*_ODD):
                if _PLAN in line and name in line:
                    event = json.loads(line)
                    for node in _nodes(event["sparkPlanInfo"]):
                        self._add(event, node)
                elif _METRICS in line and self._metrics:
                    for number, value in json.loads(line)["accumUpdates"]:
                        if number in self._metrics and isinstance(value, int):
                            self._values[number] = value

    def _add(self, event: dict[str, Any], node: dict[str, Any]) -> None:
        table = node["nodeName"].removeprefix(_NODE).strip()
        filters = _FILTERS.search(node["simpleString"])
        # The name of the catalog is Spark's own.
        if filters is None or self._name not in (table, table.partition(".")[2]):
            return
        scans = self._scans[event["executionId"]]
        # Runtime filters change with the plan.
        key = node["simpleString"][: filters.end(1)]
        scan = scans.get(key)
        if scan is None:
            # Later plans of an execution have no time.
            if "time" not in event:
                return
            snapshot = _SNAPSHOT.search(key)
            scan = scans[key] = SparkScan(
                at=datetime.fromtimestamp(event["time"] / 1000, UTC),
                filter=_NOT_NULL.sub("", filters[1]).removesuffix(", "),
                columns=self._columns(filters[1]),
                snapshot_id=int(snapshot[1]) if snapshot else None,
            )
        for metric in node["metrics"]:
            what = {_FILES: "files", _SKIPPED: "skipped", _BYTES: "bytes"}.get(metric["name"])
            if what is not None:
                # Executions that use a cached plan have the metrics of the first one.
                self._metrics.setdefault(metric["accumulatorId"], (scan, what))

    def _columns(self, filters: str) -> frozenset[str]:
        return frozenset(self._compared.findall(_without_negated(_TEXT.sub("?", filters))))


def _without_negated(filters: str) -> str:
    kept, start = [], 0
    while (at := filters.find(_NOT, start)) >= 0:
        kept.append(filters[start:at])
        depth, start = 1, at + len(_NOT)
        while depth and start < len(filters):
            depth += {"(": 1, ")": -1}.get(filters[start], 0)
            start += 1
    return "".join([*kept, filters[start:]])


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields the scans of a plan."""
    left = [plan]
    while left:
        node = left.pop()
        left += node["children"]
        if node["nodeName"].startswith(_NODE):
            yield node


def _files(table: Table, location: str) -> Sequence[_Log]:
    """Returns the logs, in the order in which they were written."""
    scheme, netloc, path = PyArrowFileIO.parse_location(location)
    try:
        store = PyArrowFileIO(table.io.properties).fs_by_scheme(scheme, netloc)
        info = store.get_file_info(path)
        if info.is_file:
            found = [info]
        else:
            selector = FileSelector(path, recursive=True, allow_not_found=True)
            found = [one for one in store.get_file_info(selector) if one.is_file]
    except (OSError, ValueError) as error:
        raise LakeError(f"{location} cannot be listed: {error}") from error
    logs = [one for one in found if not one.base_name.startswith((".", "_", "appstatus_"))]
    if not logs:
        raise LakeError(f"{location} has no event log of Spark: spark.eventLog.enabled writes them")
    return [(store, one) for one in sorted(logs, key=_order)]


def _order(file: FileInfo) -> tuple[str, int, str]:
    """Of the files of a log, ``events_10_`` comes after ``events_9_``."""
    number = re.match(r"events_(\d+)_", file.base_name)
    return file.path.rpartition("/")[0], int(number[1]) if number else 0, file.path


def _lines(store: FileSystem, path: str) -> Iterator[bytes]:
    """Yields the lines of a log that may still be written, or was cut off."""
    end = path.removesuffix(".inprogress").removesuffix(".compact").rpartition(".")[2]
    if end in _OTHER_CODECS:
        raise ValueError(f"compressed by {end}; spark.eventLog.compression.codec=zstd can be read")
    codec = _CODECS.get(end)
    with store.open_input_stream(path, compression=codec, buffer_size=_BUFFER) as stream:
        begun: list[bytes] = []
        # What comes before the end of a log that is cut off is in small pieces.
        while found := stream.read(_CHUNK):
            first, *others = found.split(b"\n")
            begun.append(first)
            if others:
                yield b"".join(begun)
                yield from others[:-1]
                begun = [others[-1]]
        yield b"".join(begun)
