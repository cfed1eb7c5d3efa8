"""Documents: what programs read of a feature, by ``--json`` and over REST.

A document takes its values from a record, by the names of its fields; a field with another name has
:func:`source`. So a form is written once, for commands, for answers and for the description of the
API. The fields of a document do not change, since programs rely on them.
"""

from collections.abc import Iterable, Sized
from datetime import datetime
from typing import Annotated, Any, Self

from pydantic import AliasPath, BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer

from arctic_orchestration.quantities import iso


def _number_of(items: object) -> object:
    return len(items) if isinstance(items, Sized) else items


#: a moment in UTC
At = Annotated[
    datetime,
    PlainSerializer(iso, return_type=str),
    Field(json_schema_extra={"format": "date-time"}),
]
#: how many items the record has
Count = Annotated[int, BeforeValidator(_number_of)]


def source(path: str) -> Any:
    """Declares the attribute of the record from which a field is taken: ``task.id``."""
    return Field(validation_alias=AliasPath(*path.split(".")))


class Document(BaseModel):
    """The base of all documents."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", from_attributes=True, populate_by_name=True
    )

    @classmethod
    def from_record(cls, record: object, **values: Any) -> Self:
        """Returns the document of a record.

        Args:
            record: what the fields are taken from; None: they are null.
            values: of fields that the record does not have as they are.
        """
        return cls.model_validate(_Source(record, values))

    @classmethod
    def from_records(cls, records: Iterable[object]) -> list[Self]:
        """Returns the documents of records."""
        return [cls.from_record(record) for record in records]

    def to_json(self) -> dict[str, Any]:
        """Returns the JSON form."""
        return self.model_dump(mode="json", by_alias=True)


class _Source:
    """A record, and values that precede its own."""

    def __init__(self, record: object, values: dict[str, Any]) -> None:
        self._record = record
        self._values = values

    def __getattr__(self, name: str) -> Any:
        if name in self._values:
            return self._values[name]
        return None if self._record is None else getattr(self._record, name)
