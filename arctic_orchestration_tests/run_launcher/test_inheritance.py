"""What the process of a run has from its host is not the run's to use up."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from textwrap import dedent

import dagster as dg
import pytest

from arctic_orchestration.run_launcher import host_client
from arctic_orchestration_tests.run_launcher.hosted_place import Make
from arctic_orchestration_tests.run_launcher.test_hosts import CODE


def test_a_run_does_not_remove_the_temporary_folders_of_its_host(make: Make) -> None:
    """Code makes them when it is imported, to be removed when the interpreter ends."""
    code = CODE + dedent("""
        import shutil, tempfile
        ONE = tempfile.TemporaryDirectory()
        OTHER = tempfile.mkdtemp()
        atexit.register(shutil.rmtree, OTHER)
        MISDEEDS["use"] = "assert all(map(os.path.isdir, (ONE.name, OTHER)))"
    """)
    place = make(code)
    runs = [place.run(do="use") for _ in range(2)]
    assert [run.status for run in runs] == [dg.DagsterRunStatus.SUCCESS] * 2
    assert len({place.note_of(run.run_id)["parent"] for run in runs}) == 1


def test_a_run_may_write_although_what_its_host_inherited_has_no_reader(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the daemon was started with ``| tee`` and has ended; its host serves the next."""
    code = CODE.replace("@dg.job(executor_def=dg.in_process_executor)", dedent("""
        @dg.resource
        def loud(context):
            print("a word", flush=True)

        @dg.job(executor_def=dg.in_process_executor, resource_defs={"loud": loud})"""), 1,
    ).replace('default_value="nothing")})', 'default_value="nothing")},'
              ' required_resource_keys={"loud"})')  # fmt: skip
    code = code.replace("@dg.job(executor_def=dg.multiprocess_executor)",
                        '@dg.job(executor_def=dg.multiprocess_executor,'
                        ' resource_defs={"loud": loud})')  # fmt: skip
    reading, writing = os.pipe()

    @contextmanager
    def pipe() -> Iterator[int]:
        yield writing

    monkeypatch.setattr(host_client, "_output", pipe)
    place = make(code)
    assert place.run().status is dg.DagsterRunStatus.SUCCESS
    os.close(reading)
    os.close(writing)
    run = place.run()
    assert run.status is dg.DagsterRunStatus.SUCCESS, place.messages(run.run_id)
    assert len(place.hosts()) == 1


def test_runs_of_one_host_draw_different_random_numbers(make: Make) -> None:
    """Forked processes would go on with the state of one generator."""
    code = CODE + dedent("""
        import random, numpy
        MISDEEDS["draw"] = (
            "(FOLDER / 'drawn').open('a').write("
            "f'{random.random()} {numpy.random.random()} {os.getppid()}\\\\n')"
        )
    """)
    place = make(code)
    for _ in range(2):
        run = place.run(do="draw")
        assert run.status is dg.DagsterRunStatus.SUCCESS, place.messages(run.run_id)
    lines = (place.folder / "drawn").read_text().splitlines()
    python, numpy, hosts = zip(*map(str.split, lines), strict=True)
    assert (len(set(python)), len(set(numpy)), len(set(hosts))) == (2, 2, 1)
