"""Dagster's migrations are loaded once in a process, and are the same as when loaded anew."""

import subprocess
import sys

#: In a process of its own: this one may have called ``remember`` before.
PROCESS = """
from pathlib import Path
import dagster
from alembic.config import Config
from alembic.script import ScriptDirectory
from arctic_orchestration import migration_scripts

folder = Path(dagster.__file__).parent / "_core" / "storage" / "alembic"
config = Config()
config.set_main_option("script_location", str(folder))
anew = ScriptDirectory.from_config(config).get_heads()
assert anew and ScriptDirectory.from_config(config) is not ScriptDirectory.from_config(config)

migration_scripts.remember()
once = ScriptDirectory.from_config
kept = ScriptDirectory.from_config(config)
assert kept.get_heads() == anew
assert kept is ScriptDirectory.from_config(config)

migration_scripts.remember()
assert ScriptDirectory.from_config == once
"""


def test_migrations_are_loaded_once() -> None:
    subprocess.run([sys.executable, "-c", PROCESS], check=True)
