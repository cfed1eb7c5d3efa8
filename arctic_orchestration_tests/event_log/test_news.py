"""What is new in Dagster's event log is noticed by its type."""

import os
import resource
import threading
from collections.abc import Callable, Iterator

import dagster as dg
import pytest
from dagster import DagsterInstance

from arctic_orchestration.event_log.news import LogNews, news_of

_TRIES = 600
_FILES = 1100


@pytest.fixture
def instance(backend: str, dagster_instance: Callable[[str], DagsterInstance]) -> DagsterInstance:
    return dagster_instance(backend)


@pytest.fixture
def news(instance: DagsterInstance) -> Iterator[LogNews]:
    found = news_of(instance)
    assert found is not None
    yield found
    found.close()


def next_types(news: LogNews) -> frozenset[str]:
    """The first types that come."""
    stop = threading.Event()
    return next(types for _ in range(_TRIES) if (types := news.wait(stop)))


def test_only_what_came_since_is_new(instance: DagsterInstance, news: LogNews) -> None:
    instance.report_runless_asset_event(dg.AssetMaterialization("before"))
    assert news.wait(threading.Event()) == frozenset()
    instance.report_runless_asset_event(dg.AssetMaterialization("a"))
    assert next_types(news) == {"ASSET_MATERIALIZATION"}
    instance.report_runless_asset_event(dg.AssetObservation("a"))
    assert next_types(news) == {"ASSET_OBSERVATION"}
    assert news.wait(threading.Event()) == frozenset()


@pytest.fixture
def many_files() -> Iterator[None]:
    """More open files than ``select`` can name, as in a process with many logs and sockets."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert hard >= _FILES * 2
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, _FILES * 2), hard))
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(_FILES)]
    yield
    for file in opened:
        os.close(file)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_files")
def test_a_process_with_many_open_files_gets_news(instance: DagsterInstance, news: LogNews) -> None:
    test_the_end_of_a_run_is_news(instance, news)


def test_the_end_of_a_run_is_news(instance: DagsterInstance, news: LogNews) -> None:
    news.wait(threading.Event())

    @dg.job
    def work() -> None: ...

    run = instance.create_run_for_job(work)
    instance.report_run_failed(run)
    assert next_types(news) == {"PIPELINE_FAILURE"}


def test_a_storage_in_memory_has_none() -> None:
    with DagsterInstance.ephemeral() as instance:
        assert news_of(instance) is None
