"""Iceberg's row filters as Spark columns.

A null, and a NaN in a comparison by size, matches nothing, as in pyiceberg's own scan.
"""

from collections.abc import Callable
from typing import Any

import pyiceberg.types as iceberg
import pyspark.sql.functions as F
from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    BooleanExpression,
    BoundReference,
    BoundTerm,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    NotEqualTo,
    NotIn,
    NotNaN,
    NotNull,
    NotStartsWith,
    UnboundPredicate,
)
from pyiceberg.expressions.literals import Literal
from pyiceberg.expressions.visitors import (
    BooleanExpressionVisitor,
    BoundBooleanExpressionVisitor,
    bind,
    rewrite_not,
    visit,
)
from pyiceberg.schema import Schema
from pyspark.sql import Column

from arctic_orchestration.errors import LakeError
from arctic_orchestration.lake.row_schema import moment_of
from arctic_orchestration.lake.schema import column_at, path_of

#: predicates that may be true of all rows of a file by its bounds
_BY_BOUNDS = (EqualTo, In, LessThan, LessThanOrEqual, GreaterThan, GreaterThanOrEqual)


def null_matches_nothing(row_filter: BooleanExpression) -> BooleanExpression:
    """Rewrites a filter so that Iceberg's evaluators treat nulls and NaN like SQL.

    For Iceberg's metrics, ``x != 5`` is true of a null; for rows, and here, it is false. pyiceberg
    takes a file without a count of nulls or of NaN for one that has none, so that all rows of it
    would match if its bounds do; here, its rows are looked at.
    """
    return visit(rewrite_not(row_filter), _NotNullAdder())


def filter_column(row_filter: BooleanExpression, schema: Schema) -> Column:
    """Returns a Spark condition that is true for the matching rows, and never null.

    Errors:
        LakeError: the filter uses something other than columns and literals.
    """
    bound = bind(schema, rewrite_not(row_filter), case_sensitive=True)
    condition: Column = visit(bound, _ToSpark(schema))
    return F.coalesce(condition, F.lit(False))


class _NotNullAdder(BooleanExpressionVisitor[BooleanExpression]):
    def visit_true(self) -> BooleanExpression:
        return AlwaysTrue()

    def visit_false(self) -> BooleanExpression:
        return AlwaysFalse()

    def visit_not(self, child_result: BooleanExpression) -> BooleanExpression:
        return ~child_result

    def visit_and(
        self, left_result: BooleanExpression, right_result: BooleanExpression
    ) -> BooleanExpression:
        return left_result & right_result

    def visit_or(
        self, left_result: BooleanExpression, right_result: BooleanExpression
    ) -> BooleanExpression:
        return left_result | right_result

    def visit_unbound_predicate(self, predicate: UnboundPredicate) -> BooleanExpression:
        if isinstance(predicate, NotEqualTo | NotIn | NotStartsWith):
            return NotNull(term=predicate.term) & predicate
        if isinstance(predicate, _BY_BOUNDS):
            # Of other types than floats, no value is NaN, and binding drops the condition.
            return NotNull(term=predicate.term) & NotNaN(term=predicate.term) & predicate
        return predicate

    def visit_bound_predicate(self, predicate: Any) -> BooleanExpression:
        raise LakeError(f"row filter: got a bound predicate {predicate}, expected column names")


class _ToSpark(BoundBooleanExpressionVisitor[Column]):
    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    def visit_true(self) -> Column:
        return F.lit(True)

    def visit_false(self) -> Column:
        return F.lit(False)

    def visit_not(self, child_result: Column) -> Column:
        return ~child_result

    def visit_and(self, left_result: Column, right_result: Column) -> Column:
        return left_result & right_result

    def visit_or(self, left_result: Column, right_result: Column) -> Column:
        return left_result | right_result

    def visit_is_null(self, term: BoundTerm) -> Column:
        return self._column(term).isNull()

    def visit_not_null(self, term: BoundTerm) -> Column:
        return self._column(term).isNotNull()

    def visit_is_nan(self, term: BoundTerm) -> Column:
        return F.isnan(self._column(term))

    def visit_not_nan(self, term: BoundTerm) -> Column:
        return ~F.isnan(self._column(term))

    def visit_equal(self, term: BoundTerm, literal: Literal[Any]) -> Column:
        return self._column(term) == self._literal(term, literal.value)

    def visit_not_equal(self, term: BoundTerm, literal: Literal[Any]) -> Column:
        return self._column(term) != self._literal(term, literal.value)

    def visit_in(self, term: BoundTerm, literals: set[Any]) -> Column:
        # One expression: thousands of comparisons are nested too deep for Spark.
        return self._column(term).isin([self._literal(term, value) for value in literals])

    def visit_not_in(self, term: BoundTerm, literals: set[Any]) -> Column:
        return ~self.visit_in(term, literals)

    def visit_greater_than(self, term: BoundTerm, literal: Literal[Any]) -> Column:
        return self._ordered(term, lambda column: column > self._literal(term, literal.value))

    def visit_greater_than_or_equal(self, term: BoundTerm, literal: Literal[Any]) -> Column:
        return self._ordered(term, lambda column: column >= self._literal(term, literal.value))

    def visit_less_than(self, term: BoundTerm, literal: Literal[Any]) -> Column:
        return self._ordered(term, lambda column: column < self._literal(term, literal.value))

    def visit_less_than_or_equal(self, term: BoundTerm, literal: Literal[Any]) -> Column:
        return self._ordered(term, lambda column: column <= self._literal(term, literal.value))

    def visit_starts_with(self, term: BoundTerm, literal: Literal[Any]) -> Column:
        return self._column(term).startswith(str(literal.value))

    def visit_not_starts_with(self, term: BoundTerm, literal: Literal[Any]) -> Column:
        return ~self.visit_starts_with(term, literal)

    def _column(self, term: BoundTerm) -> Column:
        if not isinstance(term, BoundReference):
            raise LakeError(f"row filter: got {term}, expected a column")
        return column_at(path_of(self._schema, term.field.field_id))

    def _ordered(self, term: BoundTerm, compare: Callable[[Column], Column]) -> Column:
        column = self._column(term)
        if isinstance(term.ref().field.field_type, iceberg.FloatType | iceberg.DoubleType):
            # For Spark, NaN is the greatest number.
            return compare(column) & ~F.isnan(column)
        return compare(column)

    def _literal(self, term: BoundTerm, value: Any) -> Column:
        kind = term.ref().field.field_type
        if (column := moment_of(kind, value)) is not None:
            return column
        match kind:
            case iceberg.BinaryType():
                return F.lit(bytearray(value))
            case iceberg.FloatType():
                return F.lit(value).cast("float")
            case _:
                return F.lit(value)
