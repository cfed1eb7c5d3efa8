"""State, logs and locks are for their owner alone, whatever the umask."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from arctic_orchestration import private_files
from arctic_orchestration.cli.doctor import state_checks
from arctic_orchestration.state.database import Database


@pytest.fixture(params=[0o000, 0o022, 0o077, 0o777])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    """What processes take away from the files they make."""
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    """The mode of each file."""
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}


def test_a_state_database_is_made_for_its_owner(umask: int, tmp_path: Path) -> None:
    """With all files that SQLite makes beside it."""
    database = Database.open(f"sqlite:///{tmp_path / 'arctic.db'}")
    with database.begin() as tx:
        tx.exec_driver_sql("create table written (word text)")
        expected = {"arctic.db": 0o600, "arctic.db-wal": 0o600, "arctic.db-shm": 0o600}
        assert modes(tmp_path) == expected
    database.close()


def test_without_that_others_can_read_it(
    umask: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control."""
    if umask & 0o044:
        pytest.skip("this umask takes that away already")
    monkeypatch.setattr(private_files, "make", lambda path: None)
    Database.open(f"sqlite:///{tmp_path / 'arctic.db'}").close()
    assert modes(tmp_path) == {"arctic.db": 0o644}


def test_a_rollback_journal_is_for_the_owner_too(umask: int, tmp_path: Path) -> None:
    """SQLite makes one where the file system has no shared memory."""
    database = Database(f"sqlite:///{tmp_path / 'arctic.db'}")
    connection = database.engine.raw_connection()
    connection.execute("pragma journal_mode = delete")
    connection.execute("begin immediate")
    connection.execute("create table written (word text)")
    assert modes(tmp_path) == {"arctic.db": 0o600, "arctic.db-journal": 0o600}
    connection.close()
    database.close()


def test_a_file_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    """A person may have given it to a group on purpose."""
    file = tmp_path / "arctic.db"
    file.touch(0o660)
    file.chmod(0o660)
    Database.open(f"sqlite:///{file}").close()
    assert modes(tmp_path) == {"arctic.db": 0o660}


def test_a_link_that_leads_nowhere_leads_to_a_private_file(tmp_path: Path) -> None:
    """The file is made where it leads."""
    (tmp_path / "there").mkdir()
    (tmp_path / "arctic.db").symlink_to(tmp_path / "there" / "real.db")
    before = os.umask(0)
    try:
        Database.open(f"sqlite:///{tmp_path / 'arctic.db'}").close()
    finally:
        os.umask(before)
    assert modes(tmp_path / "there") == {"real.db": 0o600}


def test_a_log_is_made_for_its_owner(umask: int, tmp_path: Path) -> None:
    """And appended to as it is."""
    for _ in range(2):
        with private_files.opened(tmp_path / "daemon.log", "ab") as log:
            log.write(b"line\n")
    assert modes(tmp_path) == {"daemon.log": 0o600}
    assert (tmp_path / "daemon.log").read_bytes() == b"line\nline\n"


def test_doctor_warns_of_a_file_that_others_can_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the command that mends it; also of the files beside it."""
    file = tmp_path / "arctic db"
    monkeypatch.setenv("ARCTIC_DATABASE_URL", f"sqlite:///{file}")
    assert state_checks.permissions() == []
    Database.open(f"sqlite:///{file}").close()
    (finding,) = state_checks.permissions()
    assert (finding.status, finding.found) == ("ok", f"only its owner can read {file}")
    wal = tmp_path / "arctic db-wal"
    for path in (file, wal):
        path.touch()
        path.chmod(0o644)
    (finding,) = state_checks.permissions()
    assert (finding.status, finding.advice) == ("warning", f"chmod 600 '{file}' '{wal}'")
