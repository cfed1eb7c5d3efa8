"""The code of a workspace is loaded as Dagster's code servers load it."""

import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from arctic_orchestration.schedules.dagster.adoption.workspace import load_workspace


def test_a_module_of_a_workspace_is_found_in_the_present_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Dagster's daemon finds it, although the path of a command begins with its own folder."""
    (tmp_path / "shop_of_test.py").write_text("import dagster as dg\ndefs = dg.Definitions()\n")
    file = tmp_path / "workspace.yaml"
    module = "{module_name: shop_of_test, location_name: shop}"
    file.write_text(f"load_from:\n- python_module: {module}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path not in ("", str(tmp_path))])
    (loaded,) = load_workspace([file], [], datetime(2026, 3, 2, tzinfo=UTC))
    assert loaded.owner == "shop/__repository__"
