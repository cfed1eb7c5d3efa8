"""pyiceberg's filters of rows, as its own constructors take them.

The mypy plugin of pydantic gives them the constructors of plain models: keyword only, of fields.
"""

from collections.abc import Callable
from typing import cast

from pyiceberg import expressions
from pyiceberg.expressions import And, BooleanExpression, Not, Or

__all__ = [
    "And", "BooleanExpression", "EqualTo", "GreaterThan", "GreaterThanOrEqual", "In", "IsNaN",
    "IsNull", "LessThan", "LessThanOrEqual", "Not", "NotEqualTo", "NotIn", "NotNull",
    "NotStartsWith", "Or", "StartsWith",
]  # fmt: skip

_OfColumn = Callable[[str], BooleanExpression]
_OfColumnAndValue = Callable[[str, object], BooleanExpression]

EqualTo = cast(_OfColumnAndValue, expressions.EqualTo)
NotEqualTo = cast(_OfColumnAndValue, expressions.NotEqualTo)
GreaterThan = cast(_OfColumnAndValue, expressions.GreaterThan)
GreaterThanOrEqual = cast(_OfColumnAndValue, expressions.GreaterThanOrEqual)
LessThan = cast(_OfColumnAndValue, expressions.LessThan)
LessThanOrEqual = cast(_OfColumnAndValue, expressions.LessThanOrEqual)
StartsWith = cast(_OfColumnAndValue, expressions.StartsWith)
NotStartsWith = cast(_OfColumnAndValue, expressions.NotStartsWith)
In = cast(_OfColumnAndValue, expressions.In)
NotIn = cast(_OfColumnAndValue, expressions.NotIn)
IsNull = cast(_OfColumn, expressions.IsNull)
NotNull = cast(_OfColumn, expressions.NotNull)
IsNaN = cast(_OfColumn, expressions.IsNaN)
