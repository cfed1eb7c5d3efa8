"""Turns the file of another scheduler into a file of schedules, with a report of each object."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any

from arctic_orchestration.errors import InvalidInput
from arctic_orchestration.schedules.imports.airflow import read_dag
from arctic_orchestration.schedules.imports.cdap import read_schedule
from arctic_orchestration.schedules.imports.crontab import read_crontab
from arctic_orchestration.schedules.imports.databricks import read_job
from arctic_orchestration.schedules.imports.draft import Draft, Fields, Names, NotPossible, Options
from arctic_orchestration.yaml_file import dump, load


class Source(StrEnum):
    """A scheduler whose files can be read."""

    AIRFLOW = "airflow"
    CDAP = "cdap"
    CRONTAB = "crontab"
    DATABRICKS = "databricks"


@dataclass(frozen=True, kw_only=True)
class Import:
    """What became of a file."""

    drafts: Sequence[Draft]

    @property
    def forms(self) -> list[dict[str, Any]]:
        return [draft.form for draft in self.drafts if draft.form is not None]

    def to_yaml(self) -> str:
        """Returns the file of schedules for ``arctic schedules apply``."""
        return dump({"schedules": self.forms})

    def to_json(self) -> dict[str, Any]:
        return {"schedules": self.forms, "report": [draft.to_json() for draft in self.drafts]}


@dataclass(frozen=True, kw_only=True)
class _Json:
    """How a source's JSON lists its objects."""

    #: the key of the list in an answer with several objects
    key: str | None
    #: the keys by which an object is called in the report, the best first
    called: tuple[str, ...]
    read: Callable[[Fields], None]


_SOURCES = {
    Source.AIRFLOW: _Json(key="dags", called=("dag_id",), read=read_dag),
    Source.CDAP: _Json(key=None, called=("name",), read=read_schedule),
    Source.DATABRICKS: _Json(key="jobs", called=("name", "job_id"), read=read_job),
}


def import_schedules(source: Source, text: str, *, name: str, options: Options) -> Import:
    """Reads the file of another scheduler; changes nothing.

    Args:
        source: the scheduler.
        text: JSON, or the lines of a crontab.
        name: the file's name in messages about its syntax.
        options: what the file does not say.

    Errors:
        InvalidInput: no JSON, or not of the expected form.
        InvalidDefinition: foreign names that would become one; names each of them.
    """
    names = Names()
    if source is Source.CRONTAB:
        drafts = list(read_crontab(text, names, options))
    else:
        drafts = list(_objects(_SOURCES[source], load(text, name=name), name, names, options))
    names.refuse_collisions(drafts)
    return Import(drafts=drafts)


def _objects(
    source: _Json, document: object, name: str, names: Names, options: Options
) -> Iterator[Draft]:
    draft = partial(Draft, names=names, options=options)
    if source.key is not None and isinstance(document, Mapping) and source.key in document:
        listed = document[source.key]
        size = len(listed) if isinstance(listed, list) else 0
        for key, value in document.items():
            # total_entries is how many there are on all pages.
            if key not in (source.key, "prev_page_token") and value not in (False, "", None, size):
                page = draft(source=key)
                page.refuse(f"{key}: {value}: the file is one page of several, or not understood")
                yield page
        document = listed
    objects = [document] if isinstance(document, Mapping) else document
    if not isinstance(objects, list) or not objects:
        expected = "an object of the API, or a list of them that is not empty"
        raise InvalidInput(name, document, expected)
    for place, value in enumerate(objects):
        made = draft(source=_called(value, source.called) or f"[{place}]")
        try:
            source.read(Fields(value, made))
        except NotPossible as reason:
            made.refuse(str(reason))
        yield made


def _called(value: object, keys: Sequence[str]) -> str | None:
    """Returns what an object is called; a job of Databricks has its name in its settings."""
    if not isinstance(value, Mapping):
        return None
    settings = value.get("settings")
    for key in keys:
        for place in (settings, value) if isinstance(settings, Mapping) else (value,):
            if isinstance(place.get(key), (str, int)):
                return str(place[key])
    return None
