"""A process that commits replacements, and is killed at a step of it.

The steps are those after which the world is another one: outputs were looked at, a manifest was
written, all were, the list was, the table's new metadata file was, the catalog took it, and its
answer arrived.
"""

import inspect
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from arctic_orchestration.lake import open_catalog
from arctic_orchestration.lake.replacing import replace as replacing
from arctic_orchestration.lake.replacing.commit_loop import CommitLoop
from arctic_orchestration.lake.replacing.producer import ReplaceFiles
from arctic_orchestration.lake.replacing.replace import Replacement, replace_files
from arctic_orchestration.lake.upkeep.manifest_rewriting import rewrite_manifests
from arctic_orchestration.settings import Settings
from arctic_orchestration_tests.forking import forkserver
from arctic_orchestration_tests.patience import PATIENCE_SECONDS
from arctic_orchestration_tests.proofs.processes import end_with_the_parent

#: The steps, with what has just returned then.
STEPS: dict[str, tuple[Any, str]] = {
    "outputs looked at": (replacing, "checked_outputs"),
    "first manifest begun": (ReplaceFiles, "_writer"),
    "manifests written": (ReplaceFiles, "_manifests"),
    "manifest list written": (ReplaceFiles, "commit"),
    "metadata file written": (SqlCatalog, "_write_metadata"),
    "catalog changed": (SqlCatalog, "commit_table"),
    "committed": (Table, "_do_commit"),
    "returned": (CommitLoop, "commit"),
}
#: From here on the commit is in the table.
LANDED = ("catalog changed", "committed", "returned")


def commit_until(lake: Path, name: str, replacements: Sequence[Replacement], step: str) -> None:
    """Starts the process and waits until it has killed itself at the step.

    Without replacements, it merges the table's manifests.
    """
    processes = forkserver()
    process = processes.Process(target=_commit, args=(lake, name, list(replacements), step))
    process.start()
    process.join(PATIENCE_SECONDS)
    assert process.exitcode == -signal.SIGKILL, f"{step}: ended with {process.exitcode}"


def _commit(lake: Path, name: str, replacements: list[Replacement], step: str) -> None:
    end_with_the_parent()
    catalog = open_catalog(Settings.from_environment({"ARCTIC_LAKE": str(lake)}))
    table = catalog.load_table(name)
    owner, function = STEPS[step]
    killed: Any = _then_killed(getattr(owner, function))
    if isinstance(inspect.getattr_static(owner, function), staticmethod):
        killed = staticmethod(killed)
    setattr(owner, function, killed)
    if replacements:
        replace_files(table, replacements)
    else:
        rewrite_manifests(table)


def _then_killed(function: Callable[..., Any]) -> Callable[..., Any]:
    def killed(*arguments: Any, **named: Any) -> None:
        function(*arguments, **named)
        os.kill(os.getpid(), signal.SIGKILL)

    return killed
