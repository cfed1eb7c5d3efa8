"""Any sequence of appends, overwrites and deletes: the files and deletes of every snapshot.

A model keeps what was done and finds the deletes of a file by looking at all of them, with the
specification's sentences and nothing else. Files without equality deletes are compared with
pyiceberg's planner too. ``ARCTIC_PROOF=full`` runs 1,000 sequences, by default 100.
"""

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField, StringType

from arctic_orchestration.lake import ensure_table, open_catalog
from arctic_orchestration.lake.manifests import live_files, table_numbers
from arctic_orchestration_tests.lake.conftest import settings_for
from arctic_orchestration_tests.lake.delete_writer import (
    Scope,
    WrittenDelete,
    add_equality_deletes,
    add_position_deletes,
)
from arctic_orchestration_tests.lake.imagined_files import commit_files, imagined

EXAMPLES = 1000 if os.environ.get("ARCTIC_PROOF") == "full" else 100
SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "origin", StringType()))
ORIGINS = ["EWR", "JFK", None]

origins = st.sampled_from(ORIGINS)
numbers = st.integers(0, 7)
operations = st.one_of(
    # origins of the new files, and whether small manifests are merged
    st.tuples(st.just("append"), st.lists(origins, min_size=1, max_size=3), st.booleans()),
    # some files go, and as many new ones of their origins come
    st.tuples(st.just("overwrite"), st.lists(numbers, min_size=1, max_size=3), st.just(None)),
    st.tuples(
        st.just("position"), st.lists(numbers, min_size=1, max_size=3), st.sampled_from(list(Scope))
    ),
    st.tuples(st.just("equality"), origins, st.just(None)),
    st.tuples(st.just("equality everywhere"), st.just(None), st.just(None)),
    # the table gets partitions, or loses them
    st.tuples(st.just("spec"), st.just(None), st.just(None)),
)


@dataclass
class ModelFile:
    path: str
    spec: int
    partition: tuple[Any, ...]
    number: int


@dataclass
class ModelDelete:
    written: WrittenDelete
    equality: bool
    #: a file of position deletes names these
    paths: frozenset[str]
    scope: Scope | None = None

    def is_for(self, file: ModelFile) -> bool:
        here = (file.spec, file.partition) == (self.written.spec_id, self.written.partition)
        if self.equality:
            everywhere = self.written.partition == ()
            return self.written.sequence_number > file.number and (here or everywhere)
        if not here or self.written.sequence_number < file.number:
            return False
        match self.scope:
            case Scope.PARTITION_WITHOUT_BOUNDS:
                return True
            case Scope.PARTITION:
                return min(self.paths) <= file.path <= max(self.paths)
            case _:
                return file.path in self.paths


@dataclass
class Model:
    table: Table
    files: list[ModelFile] = field(default_factory=list)
    deletes: list[ModelDelete] = field(default_factory=list)
    #: what the table looked like at each snapshot
    history: dict[int, dict[str, list[str]]] = field(default_factory=dict)
    made: int = 0

    def do(self, operation: tuple[str, Any, Any]) -> None:
        match operation:
            case "append", wanted, merge:
                self._commit([self._new(origin) for origin in wanted], [], merge=merge)
            case "overwrite", chosen, _:
                going = self._chosen(chosen)
                if going:
                    origin = going[0].partition[0] if going[0].partition else "EWR"
                    self._commit([self._new(origin)], going)
            case "position", chosen, scope:
                self._delete_positions(self._chosen(chosen), scope)
            case "equality", origin, _:
                if self._is_parted():
                    written = add_equality_deletes(self.table, ONE, ["id"], partition=[origin])
                    self._take(written, equality=True)
            case "equality everywhere", _, _:
                self._take(add_equality_deletes(self.table, ONE, ["id"]), equality=True)
            case "spec", _, _:
                parted = self._is_parted()
                with self.table.update_spec() as update:
                    update.remove_field("origin") if parted else update.add_identity("origin")

    def state(self) -> dict[str, list[str]]:
        return {
            file.path: [one.written.path for one in self.deletes if one.is_for(file)]
            for file in self.files
        }

    def _is_parted(self) -> bool:
        return bool(self.table.spec().fields)

    def _new(self, origin: str | None) -> ModelFile:
        self.made += 1
        partition = (origin,) if self._is_parted() else ()
        return ModelFile(f"/{self.made:04d}", self.table.spec().spec_id, partition, 0)

    def _chosen(self, numbers: list[int]) -> list[ModelFile]:
        places = {number % len(self.files) for number in numbers} if self.files else set()
        return [self.files[place] for place in sorted(places)]

    def _commit(self, new: list[ModelFile], going: list[ModelFile], merge: bool = False) -> None:
        def described(files: list[ModelFile]) -> list[Any]:
            return [imagined(file.path, file.partition, spec_id=file.spec) for file in files]

        number = commit_files(self.table, described(new), described(going), merge=merge)
        for file in new:
            file.number = number
        self.files = [file for file in self.files if file not in going] + new
        self._remember()

    def _delete_positions(self, files: list[ModelFile], scope: Scope) -> None:
        if not files:
            return
        written = add_position_deletes(self.table, {one.path: [0] for one in files}, scope=scope)
        for delete in written:
            names = pa.parquet.read_table(delete.path)["file_path"].to_pylist()
            self.deletes.append(ModelDelete(delete, False, frozenset(names), scope))
        self._remember()

    def _take(self, written: list[WrittenDelete], *, equality: bool) -> None:
        self.deletes += [ModelDelete(one, equality, frozenset()) for one in written]
        self._remember()

    def _remember(self) -> None:
        snapshot = self.table.current_snapshot()
        assert snapshot is not None
        self.history[snapshot.snapshot_id] = self.state()


ONE = pa.table({"id": [1]})


def found(table: Table, snapshot_id: int) -> dict[str, list[str]]:
    return {
        file.path: [delete.path for delete in file.deletes]
        for file in live_files(table, snapshot_id).files
    }


def in_order(state: dict[str, list[str]]) -> dict[str, list[str]]:
    return {path: sorted(deletes) for path, deletes in state.items()}


@pytest.fixture(scope="module")
def lake() -> Iterator[Catalog]:
    with tempfile.TemporaryDirectory() as folder:
        yield open_catalog(settings_for(Path(folder)))


@pytest.mark.proof
@given(st.lists(operations, min_size=1, max_size=9))
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_every_snapshot_has_the_files_and_deletes_of_the_model(
    lake: Catalog, steps: list[tuple[str, Any, Any]]
) -> None:
    """At the end, so that also older snapshots are asked of the newest metadata."""
    table = ensure_table(
        lake,
        "lake.modelled",
        SCHEMA,
        PartitionSpec(),
        {"commit.manifest-merge.enabled": "true", "commit.manifest.min-count-to-merge": "2"},
    )
    try:
        model = Model(table)
        for step in steps:
            model.do(step)
        for snapshot_id, state in model.history.items():
            assert in_order(found(table, snapshot_id)) == in_order(state)
        live = live_files(table)
        assert {file.path: file.sequence_number for file in live.files} == {
            file.path: file.number for file in model.files
        }
        used = {path for paths in model.state().values() for path in paths}
        everything = {one.written.path for one in model.deletes}
        assert {one.path for one in live.idle_deletes} == everything - used
        assert table_numbers(table).delete_files == len(everything)
        known_to_pyiceberg = not any(
            one.equality or one.scope is Scope.REFERENCED for one in model.deletes
        )
        if known_to_pyiceberg:
            planned = {
                task.file.file_path: sorted(one.file_path for one in task.delete_files)
                for task in table.scan().plan_files()
            }
            assert planned == in_order(model.state())
    finally:
        lake.drop_table("lake.modelled")
