"""Dagster's migrations are loaded once in a process, and are the same as when loaded anew."""

import subprocess
import sys
from pathlib import Path

#: In a process of its own: this one may have called ``remember`` before.
PROCESS = """
import sys
from pathlib import Path
from alembic.config import Config
from alembic.script import ScriptDirectory
from arctic_orchestration import migration_scripts

from dagster._core.storage.sql import ALEMBIC_SCRIPTS_LOCATION

config = Config()
config.set_main_option("script_location", ALEMBIC_SCRIPTS_LOCATION)
anew = ScriptDirectory.from_config(config).get_heads()
assert anew and ScriptDirectory.from_config(config) is not ScriptDirectory.from_config(config)

migration_scripts.remember()
once = ScriptDirectory.from_config
kept = ScriptDirectory.from_config(config)
assert kept.get_heads() == anew
assert kept is ScriptDirectory.from_config(config)

migration_scripts.remember()
assert ScriptDirectory.from_config == once

theirs = Path(sys.argv[1]) / "dagster" / "migrations"
(theirs / "versions").mkdir(parents=True)
config.set_main_option("script_location", str(theirs))
assert ScriptDirectory.from_config(config).get_heads() == []
(theirs / "versions" / "1.py").write_text("revision, down_revision = 'first', None")
assert ScriptDirectory.from_config(config).get_heads() == ["first"]
"""


def test_migrations_are_loaded_once(tmp_path: Path) -> None:
    """Those of others, as of a pipeline, are loaded anew each time."""
    subprocess.run([sys.executable, "-c", PROCESS, str(tmp_path)], check=True)
