"""Keeps a process from loading the scripts of Dagster's migrations again and again.

Each storage that Dagster opens, and on SQLite the database of each run, looks for the newest of
them, for which alembic loads all, and keeps a few objects until the process ends. They never
change. Scripts of others, which might, are left alone.
"""

from typing import cast

from alembic.config import Config
from alembic.script import ScriptDirectory

#: a folder in Dagster's package, as its storages name it
_OF_DAGSTER = "dagster:"


def remember() -> None:
    """Caches the scripts of this process by their folder; a second call does nothing."""
    if getattr(ScriptDirectory.from_config, "is_arctic", False):
        return
    original = ScriptDirectory.from_config.__func__  # type: ignore[attr-defined]
    kept: dict[str, ScriptDirectory] = {}

    def from_config(cls: type[ScriptDirectory], config: Config) -> ScriptDirectory:
        place = config.get_main_option("script_location") or ""
        if not place.startswith(_OF_DAGSTER):
            return cast("ScriptDirectory", original(cls, config))
        if place not in kept:
            kept[place] = original(cls, config)
            kept[place].as_revision_number("head")
        return kept[place]

    from_config.is_arctic = True  # type: ignore[attr-defined]
    ScriptDirectory.from_config = classmethod(from_config)  # type: ignore[method-assign, assignment]
