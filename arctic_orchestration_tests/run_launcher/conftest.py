"""Fixtures of run hosts."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from arctic_orchestration_tests.run_launcher.hosted_place import Make, hosted_place
from arctic_orchestration_tests.run_launcher.test_hosts import CODE


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Makes a place whose hosts load some code, with a configuration of the launcher."""
    with ExitStack() as stack:
        yield lambda code=CODE, **config: stack.enter_context(
            hosted_place(tmp_path, code, **config)
        )
