"""The columns by which merged files are sorted, as a property of the table names them.

::

    arctic.compaction.sort = origin, delay desc
    arctic.compaction.sort = zorder(origin, delay)
"""

import re
from dataclasses import dataclass

#: the most columns of a z-order: of more, each would have hardly any influence
MOST_CURVED = 4

_CURVE = re.compile(r"zorder\((.*)\)", re.IGNORECASE)
_COLUMN = re.compile(r"([^\s,()]+)(?:\s+(asc|desc))?", re.IGNORECASE)
_EXPECTED = "columns such as: origin, delay desc; or zorder(origin, delay); or never"


@dataclass(frozen=True, slots=True)
class SortColumn:
    """A column, by its name as the schema has it; of a struct's field with dots."""

    name: str
    descending: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Clustering:
    """How rows are sorted within the files of a merge."""

    columns: tuple[SortColumn, ...]
    #: along a curve on which rows that are near in all columns are near each other
    z_order: bool = False


def parse_clustering(text: str) -> Clustering | None:
    """Reads the value of the property; None: it is ``never``.

    Errors:
        ValueError: says what was expected.
    """
    if text.strip() == "never":
        return None
    curve = _CURVE.fullmatch(text.strip())
    found = [_COLUMN.fullmatch(part.strip()) for part in (curve[1] if curve else text).split(",")]
    columns = [SortColumn(one[1], (one[2] or "").lower() == "desc") for one in found if one]
    if len(columns) < len(found) or len({one.name for one in columns}) < len(columns):
        raise ValueError(_EXPECTED)
    if curve and any(one[2] for one in found if one):
        raise ValueError("a z-order without asc or desc")
    if curve and not 2 <= len(columns) <= MOST_CURVED:
        raise ValueError(f"a z-order of 2 to {MOST_CURVED} columns")
    return Clustering(columns=tuple(columns), z_order=curve is not None)
