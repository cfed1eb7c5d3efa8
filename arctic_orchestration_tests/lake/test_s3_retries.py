"""What S3 refuses is repeated, also where the SDK or pyarrow alone would give up."""

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow.fs import AwsStandardS3RetryStrategy, S3FileSystem, S3RetryStrategy
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io import FileIO, load_file_io
from pyspark.sql import SparkSession

from arctic_orchestration.lake import s3_retries
from arctic_orchestration.lake.manifests import live_files
from arctic_orchestration.lake.s3_retries import PatientRetries, open_input
from arctic_orchestration_tests.compaction.small_lake import rows_of, table_of
from arctic_orchestration_tests.lake.delete_writer import add_position_deletes
from arctic_orchestration_tests.lake.stored_tables import group_of, merged, replaced
from arctic_orchestration_tests.object_store import (
    BUCKET,
    KEY,
    REGION,
    SECRET,
    Fault,
    ObjectStore,
    Request,
    object_store,
)

PATH = f"s3://{BUCKET}/some"
CONTENT = bytes(range(256)) * 16
RETRIES = {"s3.retry-strategy-impl": "arctic_orchestration.lake.s3_retries.PatientRetries"}


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    monkeypatch.setattr(s3_retries, "_PAUSES", (0.0,) * 5)
    with object_store() as server:
        yield server


@pytest.fixture
def io(store: ObjectStore) -> FileIO:
    made = load_file_io(store.properties | RETRIES, PATH)
    with made.new_output(PATH).create() as stream:
        stream.write(CONTENT)
    return made


@pytest.mark.parametrize("size", [1, 8, 250])
def test_a_small_read_is_repeated(io: FileIO, store: ObjectStore, size: int) -> None:
    """From where it began; pyarrow alone fails at once, which is the control."""
    fault = store.fail("GetObject", "SlowDown", times=2)
    with open_input(io, PATH) as stream:
        stream.seek(300)
        assert stream.read(size) == CONTENT[300:][:size]
        assert stream.tell() == 300 + size
    assert fault.hits == 2
    fault = store.fail("GetObject", "SlowDown", times=1)
    with open_input(io, PATH) as stream:
        stream.seek(-size, 2)
        assert stream.read_buffer(size).to_pybytes() == CONTENT[-size:]
    assert fault.hits == 1
    store.fail("GetObject", "SlowDown", times=1)
    with (
        io.new_input(PATH).open() as stream,
        pytest.raises(OSError, match="Failed to flush response stream"),
    ):
        stream.read(size)


def test_what_stays_is_an_error(io: FileIO, store: ObjectStore) -> None:
    """After six attempts; other errors come at once."""
    fault = store.fail("GetObject", "SlowDown")
    with (
        open_input(io, PATH) as stream,
        pytest.raises(OSError, match="Failed to flush response stream"),
    ):
        stream.read(8)
    assert fault.hits == 6
    store.faults.clear()
    with open_input(io, PATH) as stream:
        store.expired.add(KEY)
        with store.counted() as requests, pytest.raises(OSError, match="AWS Error"):
            stream.read(1000)
    assert requests == {"GetObject": 1}


@pytest.mark.parametrize("strategy", [PatientRetries, AwsStandardS3RetryStrategy])
def test_a_client_repeats_any_number_of_requests(
    store: ObjectStore, strategy: type[S3RetryStrategy]
) -> None:
    """The control is the SDK's standard strategy: with pyarrow, it ends after 100."""
    options = {"access_key": KEY, "secret_key": SECRET, "region": REGION}
    files = S3FileSystem(endpoint_override=store.endpoint, retry_strategy=strategy(), **options)
    names = [f"{BUCKET}/{number}" for number in range(150)]
    for name in names:
        with files.open_output_stream(name) as stream:
            stream.write(CONTENT)
    seen: set[str] = set()

    def is_first(request: Request) -> bool:
        is_new = request.operation == "GetObject" and request.path not in seen
        if is_new:
            seen.add(request.path)
        return is_new

    def read(name: str) -> bool:
        try:
            with files.open_input_file(name) as stream:
                return bool(stream.read() == CONTENT)
        except OSError:
            return False

    store.faults.append(Fault(matches=is_first, code="SlowDown"))
    with ThreadPoolExecutor(32) as threads:
        found = sum(threads.map(read, names))
    assert found == 150 if strategy is PatientRetries else found <= 100


def test_files_of_other_stores_are_opened_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "some"
    path.write_bytes(CONTENT)
    with open_input(load_file_io({}, str(path)), str(path)) as stream:
        assert isinstance(stream, pa.NativeFile)
        assert stream.read() == CONTENT


def test_rows_are_merged_while_small_reads_are_refused(
    classic_spark: SparkSession, store: ObjectStore, tmp_path: Path
) -> None:
    """Delete files and columns of a few rows are read in ranges of some bytes."""
    catalog = SqlCatalog(
        "lake",
        uri=f"sqlite:///{tmp_path}/catalog.db",
        warehouse=f"s3://{BUCKET}/tables",
        **store.properties,
        **RETRIES,
    )
    table = table_of(catalog, files=4)
    paths = [file.path for file in live_files(table.refresh()).files]
    add_position_deletes(table, {path: [0, 9] for path in paths})
    expected = rows_of(table)
    group = group_of(table)
    number = itertools.count()

    def is_refused(request: Request) -> bool:
        # The SDK repeats the others, and waits for seconds in between.
        is_small = request.operation == "GetObject" and request.size < 250
        return is_small and next(number) % 3 < 2

    fault = Fault(matches=is_refused, code="SlowDown")
    store.faults.append(fault)
    done = merged(classic_spark, table, group)
    store.faults.clear()
    assert fault.hits >= 4
    replaced(table, group, done)
    assert (rows_of(table), done.rows_deleted) == (expected, 8)
