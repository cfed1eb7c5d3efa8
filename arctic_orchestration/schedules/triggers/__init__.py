"""Pure rules over events and time that decide when a schedule fires.

The union below is the registry: a new trigger is one file and one line here.
"""

from typing import Annotated

from pydantic import BeforeValidator, Field, PlainSerializer

from arctic_orchestration.schedules.triggers.base import Arrivals, Firing, Leaf, Ticks, Trigger
from arctic_orchestration.schedules.triggers.check import Check
from arctic_orchestration.schedules.triggers.combined import AllOf, AnyOf, kept_for_all
from arctic_orchestration.schedules.triggers.cron import Cron
from arctic_orchestration.schedules.triggers.data import Data
from arctic_orchestration.schedules.triggers.elapsed import Elapsed
from arctic_orchestration.schedules.triggers.freshness import Freshness
from arctic_orchestration.schedules.triggers.partition_end import PartitionEnd
from arctic_orchestration.schedules.triggers.partitions import Partitions
from arctic_orchestration.schedules.triggers.quiet import Quiet
from arctic_orchestration.schedules.triggers.requests import Requests
from arctic_orchestration.schedules.triggers.run import Run
from arctic_orchestration.schedules.triggers.then import Then
from arctic_orchestration.specification import kinds_of, untag

TriggerUnion = (
    Cron  # without a comment the formatter would join the lines
    | Partitions
    | PartitionEnd
    | Data
    | Quiet
    | Run
    | Elapsed
    | Check
    | Freshness
    | Requests
    | AllOf
    | AnyOf
    | Then
)

KINDS = kinds_of(TriggerUnion)

AnyTrigger = Annotated[
    TriggerUnion,
    Field(discriminator="kind"),
    BeforeValidator(lambda form: untag(form, KINDS, "trigger")),
    PlainSerializer(lambda trigger: trigger.to_form(), return_type=dict),
]

for _combined in (AllOf, AnyOf, Then):
    _combined.model_rebuild(_types_namespace={"AnyTrigger": AnyTrigger})

__all__ = [
    "KINDS",
    "AllOf",
    "AnyOf",
    "AnyTrigger",
    "Arrivals",
    "Check",
    "Cron",
    "Data",
    "Elapsed",
    "Firing",
    "Freshness",
    "Leaf",
    "PartitionEnd",
    "Partitions",
    "Quiet",
    "Requests",
    "Run",
    "Then",
    "Ticks",
    "Trigger",
    "kept_for_all",
]
