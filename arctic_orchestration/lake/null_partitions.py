"""Comparisons of the null of a partition, with which pyiceberg 0.12 fails.

It evaluates all parts of a filter for the partition of each planned file. A comparison by size is a
``TypeError`` if the value is null; it is false, as for rows.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

from pyiceberg.expressions import AlwaysFalse, BooleanExpression
from pyiceberg.expressions.visitors import ResidualVisitor

_BY_SIZE = (
    "visit_less_than",
    "visit_less_than_or_equal",
    "visit_greater_than",
    "visit_greater_than_or_equal",
)
_Visit = Callable[[ResidualVisitor, Any, Any], BooleanExpression]


def compare_nulls() -> None:
    """Lets pyiceberg compare nulls in this process; a further call changes nothing."""
    for name in _BY_SIZE:
        visit = getattr(ResidualVisitor, name)
        if not hasattr(visit, "__wrapped__"):
            setattr(ResidualVisitor, name, _false_for_null(visit))


def _false_for_null(visit: _Visit) -> _Visit:
    @wraps(visit)
    def visited(self: ResidualVisitor, term: Any, literal: Any) -> BooleanExpression:
        if term.eval(self.struct) is None:
            return AlwaysFalse()
        return visit(self, term, literal)

    return visited
