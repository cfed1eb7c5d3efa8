"""Proof: the kills once more, on Iceberg's REST catalog with S3 underneath, and faults in both.

The catalog and the store refuse the crew, break its connections, or lose the answer of a commit
that was made; the writers of the tables have none of that, since pyiceberg alone would repeat a
commit whose answer is lost. ``ARCTIC_PROOF=full`` kills 200 times on each state database.
"""

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from pyiceberg.catalog import Catalog

from arctic_orchestration.lake import open_catalog
from arctic_orchestration_tests.conftest import BACKENDS
from arctic_orchestration_tests.iceberg_rest import ABSENT, iceberg_rest, is_absent
from arctic_orchestration_tests.lake.conftest import settings_for
from arctic_orchestration_tests.object_store import Fault, ObjectStore, Request, object_store
from arctic_orchestration_tests.proofs.compaction.crew import COMMITTER, WORKER
from arctic_orchestration_tests.proofs.compaction.killed import ROLES, STEPS, Killed
from arctic_orchestration_tests.proofs.compaction.sizes import FULL
from arctic_orchestration_tests.proofs.compaction.what_is_wrong import (
    unknown_files,
    what_is_wrong,
)
from arctic_orchestration_tests.rest_catalog import TOKEN, CommitFault, RestServer, rest_catalog
from arctic_orchestration_tests.served_catalog import behind

pytestmark = [pytest.mark.proof, pytest.mark.timeout(7200)]

ROUNDS = 8
KILLS = 200 if FULL else 0
_CREW = "AKIACREW"
#: the share of requests of the crew that the store refuses, or breaks
_REFUSED, _CUT = 0.05, 0.01
_STATUSES = (409, 429, 500, 502, 503, 504, None)


@dataclass(kw_only=True)
class Place:
    """A REST catalog over an object store, as the crew finds it, and as the writers do."""

    store: ObjectStore
    #: what the crew asks
    server: RestServer
    crew: Path
    writers: Path
    chance: random.Random

    def fail_some(self) -> None:
        """Refuses some requests of the crew's from now on."""

        def share(most: float, code: str, operations: str) -> Fault:
            def matches(request: Request) -> bool:
                is_meant = request.key == _CREW and request.operation.startswith(operations)
                return is_meant and self.chance.random() < most

            return Fault(matches=matches, code=code)

        self.store.faults += [share(_REFUSED, "SlowDown", ""), share(_CUT, "cut", "GetObject")]

    def fail_next_commit(self) -> None:
        """Refuses the next commit, or loses its answer."""
        status = self.chance.choice(_STATUSES)
        applied = status not in (409, 429) and self.chance.random() < 0.5
        self.server.faults.append(CommitFault(status=status, applied=applied))


def _home(directory: Path, server: RestServer, store: ObjectStore, key: str) -> Path:
    """A directory with pyiceberg's file."""
    directory.mkdir()
    lake = {"uri": server.uri, "token": TOKEN, **store.properties, "s3.access-key-id": key}
    (directory / ".pyiceberg.yaml").write_text(yaml.safe_dump({"catalog": {"lake": lake}}))
    return directory


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    if is_absent():
        pytest.skip(ABSENT)
    with object_store() as store, iceberg_rest() as jvm:
        store.keys.add(_CREW)
        with (
            jvm.server(behind(store, tmp_path)) as address,
            rest_catalog(address) as faulty,
            rest_catalog(address) as sound,
        ):
            yield Place(
                store=store,
                server=faulty,
                crew=_home(tmp_path / "for the crew", faulty, store, _CREW),
                writers=_home(tmp_path / "for writers", sound, store, "AKIALAKE"),
                chance=random.Random(19),
            )


@pytest.fixture
def lake(place: Place) -> Path:
    return place.crew


@pytest.fixture
def writers_lake(place: Place) -> Path:
    return place.writers


@pytest.fixture
def catalog(place: Place) -> Catalog:
    """As the writers find it, for the tables that are judged."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYICEBERG_HOME", str(place.writers))
        return open_catalog(settings_for(place.writers))


#: by default, a kill of the committer at its commit, and one of the worker
FEW = [(COMMITTER, "SNAPSHOT_COMMITTED"), (WORKER, "OUTPUTS_WRITTEN")]


@pytest.mark.parametrize("backend", BACKENDS if FULL else ["sqlite"])
def test_nothing_is_lost_on_object_stores_that_fail(
    killed: Killed, place: Place, backend: str
) -> None:
    """Rows as the writers left them, each task in one snapshot, no file that nobody knows."""
    began = time.monotonic()
    place.fail_some()
    for role in ROLES:
        killed.start(role)
    for role, step in STEPS * ROUNDS if FULL else FEW:
        place.fail_next_commit()
        killed.kill_at(role, step)
        print(f"{time.monotonic() - began:6.1f} s {role} {step}", flush=True)
    while killed.kills.total() < KILLS:
        place.fail_next_commit()
        killed.kill_sometime(place.chance)
    assert killed.ends() == []
    unknown = unknown_files(killed.written)
    removed = killed.remove_orphans()
    assert len(removed) == len(unknown)
    assert unknown_files(killed.written) == []
    assert what_is_wrong(killed.database, killed.written) == []
    refused, cut = (fault.hits for fault in place.store.faults)
    assert refused, "the store has refused requests"
    made = sum(not fault.times for fault in place.server.faults)
    assert made, "the catalog has failed commits"
    snapshots = sum(len(one.table.snapshots()) for one in killed.written)
    print(
        f"{backend}: {killed.kills.total()} kills {dict(killed.kills)}, {snapshots} snapshots, "
        f"{refused} requests to the store refused and {cut} broken, {made} faults of commits, "
        f"{len(removed)} orphans, nothing wrong, {time.monotonic() - began:.0f} s"
    )


@pytest.mark.parametrize("backend", ["sqlite"])
@pytest.mark.skipif(not FULL, reason="the control on files runs in this size")
def test_a_committer_without_the_tables_history_is_found_out_on_s3(killed: Killed) -> None:
    """The control: readers of objects that were removed are noticed, too."""
    killed.commits_without_history()
