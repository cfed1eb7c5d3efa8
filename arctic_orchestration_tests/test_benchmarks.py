"""The benchmarks can be loaded: they use modules of the tests, and nothing else runs them."""

import importlib
from pathlib import Path

import pytest

_FILES = sorted((Path(__file__).parents[1] / "benchmarks").glob("*.py"))


@pytest.mark.parametrize("name", [file.stem for file in _FILES if file.stem != "__init__"])
def test_it_can_be_loaded(name: str) -> None:
    importlib.import_module(f"benchmarks.{name}")
