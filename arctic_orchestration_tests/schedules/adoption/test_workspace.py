"""The code of a workspace is loaded as Dagster's code servers load it."""

import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from arctic_orchestration.errors import ConfigurationError
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


IMPORTS = "from arctic_orchestration import Arctic, Schedule, on"


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("missing_name", "module_name=.*: NameError: name 'missing_name' is not defined"),
        ("raise OSError('no\\nfile') from KeyError('a')", "module_name=.*: OSError: no$"),
        ("Arctic(schedules=1)", "cannot be loaded: schedules: got 1, expected a list"),
        # Dagster finds it later, when it resolves the definitions.
        (
            "nightly = Schedule(name='nightly', target='none', trigger=on.cron('0 4 * * *'))\n"
            "defs = Arctic(schedules=[nightly]).definitions()",
            "cannot be loaded: Schedule\\(nightly\\).target.*got 'none'",
        ),
    ],
)
def test_what_the_code_raises_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, reason: str
) -> None:
    (tmp_path / f"{tmp_path.name}.py").write_text(f"{IMPORTS}\n{code}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    with pytest.raises(ConfigurationError, match=reason):
        load_workspace([], [tmp_path.name], datetime(2026, 3, 2, tzinfo=UTC))
