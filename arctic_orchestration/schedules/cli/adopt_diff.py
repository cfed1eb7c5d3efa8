"""``arctic adopt diff``: what schedules in shadow decided otherwise than Dagster's own."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from arctic_orchestration.console.display import Rows, console, counted, print_json
from arctic_orchestration.console.terminal import escape
from arctic_orchestration.quantities import format_moment
from arctic_orchestration.schedules.views.shadows import Difference, Shadow

if TYPE_CHECKING:
    from arctic_orchestration.schedules.dagster.adoption.session import Session


def show_differences(session: "Session", names: Sequence[str], *, as_json: bool) -> bool:
    """Prints the decisions that differ; returns whether there are any."""
    found = [
        Shadow(
            name=item.name,
            schedule=adoption.schedule,
            since=adoption.at,
            compared=comparison.compared,
            open=comparison.open,
            differences=Difference.from_records(comparison.differences),
        )
        for item, adoption in session.shadows(names)
        for comparison in (session.compare(item, adoption),)
    ]
    rows = [(shadow, one) for shadow in found for one in shadow.differences]
    if as_json:
        print_json([shadow.to_json() for shadow in found])
        return bool(rows)
    shown = Rows(None, "object", "of", "what differs", "reasons", text="reasons")
    for shadow, one in rows:
        subject = format_moment(one.at) + (f" {one.about}" if one.about else "")
        job = f" (arctic jobs explain {one.ours.source})" if one.ours.source else ""
        shown.add(
            escape(shadow.name),
            escape(subject),
            escape(one.what),
            escape(f"here: {one.ours.reason}{job}\nDagster: {one.theirs.reason}"),
        )
    if rows:
        shown.print()
    compared, still = sum(one.compared for one in found), sum(one.open for one in found)
    objects = counted(len(found), "object")
    text = f"{counted(len(rows), 'difference')} in {counted(compared, 'decision')} of {objects}"
    text += " in shadow" if found else " in shadow: see arctic adopt --shadow NAME"
    console().print(text + (f"; {still} are not made by both yet" if still else ""))
    return bool(rows)
