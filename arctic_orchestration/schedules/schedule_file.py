"""Reads files of schedules: YAML or JSON with a list ``schedules:`` at the top."""

from collections.abc import Mapping

from arctic_orchestration.errors import InvalidDefinition, InvalidInput
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.yaml_file import load

#: other keys of a file: partitions, for a simulation
DECLARATIONS = ("assets", "jobs")
_EXPECTED = "a mapping with the list schedules"


def read_schedules(text: str, *, name: str) -> list[Schedule]:
    """Returns the schedules of a file, in its order.

    Args:
        text: YAML or JSON.
        name: the file's name in messages about its syntax.

    Errors:
        InvalidInput: no YAML or JSON; names the line.
        InvalidDefinition: names every invalid field of every schedule, as
            ``schedules[3].trigger.cron.expression``, and duplicate names.
    """
    document = load(text, name=name)
    if not isinstance(document, Mapping) or "schedules" not in document:
        raise InvalidDefinition([InvalidInput(name, _short(document), _EXPECTED)])
    problems = [
        InvalidInput(str(key), _short(value), "no such field")
        for key, value in document.items()
        if key not in ("schedules", *DECLARATIONS)
    ]
    forms = document["schedules"]
    if not isinstance(forms, list):
        problems.append(InvalidInput("schedules", _short(forms), "a list of schedules"))
        raise InvalidDefinition(problems)
    read: list[Schedule] = []
    places: dict[str, int] = {}
    for place, form in enumerate(forms):
        field = f"schedules[{place}]"
        called = form.get("name") if isinstance(form, Mapping) else None
        if isinstance(called, str) and places.setdefault(called, place) != place:
            expected = f"another name: schedules[{places[called]}] has it"
            problems.append(InvalidInput(f"{field}.name", called, expected))
        try:
            read.append(Schedule.parse(form, field=field))
        except InvalidDefinition as error:
            problems += error.problems
    if problems:
        raise InvalidDefinition(problems)
    return read


def read_schedule(text: str, *, name: str, schedule: str) -> Schedule:
    """Returns one schedule of a file: the file is its fields, or lists it in ``schedules:``.

    Args:
        text: YAML or JSON.
        name: the file's name in messages about its syntax.
        schedule: the name it must have.

    Errors:
        InvalidInput: no YAML or JSON, or no schedule of that name.
        InvalidDefinition: names every invalid field of the file.
    """
    document = load(text, name=name)
    if isinstance(document, Mapping) and "schedules" in document:
        read = {one.name: one for one in read_schedules(text, name=name)}
        if schedule not in read:
            raise InvalidInput("schedules", list(read), f"one with the name {schedule}")
        return read[schedule]
    one = Schedule.parse(document)
    if one.name != schedule:
        raise InvalidInput("name", one.name, f"{schedule}: a schedule keeps its name")
    return one


def _short(value: object) -> object:
    """Returns the value, shortened if it is long."""
    shown = repr(value)
    return value if len(shown) <= 80 else f"{shown[:77]}..."
