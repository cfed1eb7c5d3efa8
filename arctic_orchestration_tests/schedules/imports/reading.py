"""Reads the sample files, and drafts of single objects."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from arctic_orchestration.schedules.imports.draft import Draft, Options
from arctic_orchestration.schedules.imports.importer import Source, import_schedules

HERE = Path(__file__).parent
NOW = datetime(2026, 1, 10, tzinfo=UTC)
SAMPLES = {
    source: HERE / "samples" / (source if source is Source.CRONTAB else f"{source}.json")
    for source in Source
}


def drafts(
    source: Source, content: object, *, timezone: str | None = None, user_column: bool = False
) -> list[Draft]:
    """What became of a text, or of an object of an API."""
    text = content if isinstance(content, str) else json.dumps(content)
    options = Options(now=NOW, timezone=timezone, user_column=user_column)
    return list(import_schedules(source, text, name="x.json", options=options).drafts)


def only(source: Source, content: object, *, timezone: str | None = "UTC") -> Draft:
    """What became of a single object, in a zone that a person has named."""
    (draft,) = drafts(source, content, timezone=timezone)
    return draft


def sample(source: Source, **options: Any) -> Mapping[str, Draft]:
    """The drafts of a sample file, by their names there."""
    made = drafts(source, SAMPLES[source].read_text(), **options)
    return {draft.source: draft for draft in made}


def form(draft: Draft) -> dict[str, Any]:
    assert draft.form is not None, draft.reasons
    return draft.form
