"""Pure rules that admit, hold or cancel a job whose trigger is satisfied.

The union below is the registry: a new constraint is one file and one line here.
"""

from typing import Annotated

from pydantic import BeforeValidator, Field, PlainSerializer

from arctic_orchestration.schedules.constraints.base import Constraint, Decision, Facts, Verdict
from arctic_orchestration.schedules.constraints.checks_passed import ChecksPassed
from arctic_orchestration.schedules.constraints.concurrency import Concurrency
from arctic_orchestration.schedules.constraints.delay import Delay
from arctic_orchestration.schedules.constraints.fresh import Fresh
from arctic_orchestration.schedules.constraints.idle import Idle
from arctic_orchestration.schedules.constraints.load import Load
from arctic_orchestration.schedules.constraints.minimum_interval import MinimumInterval
from arctic_orchestration.schedules.constraints.rate import Rate
from arctic_orchestration.schedules.constraints.window import Window
from arctic_orchestration.specification import kinds_of, untag

ConstraintUnion = (
    Concurrency  # without a comment the formatter would join the lines
    | Rate
    | Window
    | Delay
    | MinimumInterval
    | Load
    | Fresh
    | ChecksPassed
    | Idle
)

KINDS = kinds_of(ConstraintUnion)

AnyConstraint = Annotated[
    ConstraintUnion,
    Field(discriminator="kind"),
    BeforeValidator(lambda form: untag(form, KINDS, "constraint")),
    PlainSerializer(lambda constraint: constraint.to_form(), return_type=dict),
]

__all__ = [
    "KINDS",
    "AnyConstraint",
    "ChecksPassed",
    "Concurrency",
    "Constraint",
    "Decision",
    "Delay",
    "Facts",
    "Fresh",
    "Idle",
    "Load",
    "MinimumInterval",
    "Rate",
    "Verdict",
    "Window",
]
