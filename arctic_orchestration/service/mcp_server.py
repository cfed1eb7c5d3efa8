"""The read-only questions of operators as tools of the Model Context Protocol, for agents.

The answers are those of the views that commands and REST show; no tool changes anything.
"""

from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any, ParamSpec

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations
from pydantic import Field

from arctic_orchestration.clock import utc_now
from arctic_orchestration.errors import ArcticError, InvalidInput, naming
from arctic_orchestration.event_log.escaping import is_storable
from arctic_orchestration.schedules.lookup import location_by_name
from arctic_orchestration.schedules.simulator.lines import parse_moment
from arctic_orchestration.schedules.store import ScheduleStore
from arctic_orchestration.schedules.views.documents import explanation_document
from arctic_orchestration.schedules.views.explanation import explain, explain_schedule
from arctic_orchestration.schedules.views.why_not import why_not
from arctic_orchestration.service import simulation
from arctic_orchestration.settings import Settings
from arctic_orchestration.state.database import Database
from arctic_orchestration.waiting.reader import waiting, waiting_by_cause
from arctic_orchestration.waiting.wait_filter import WaitFilter

_INSTRUCTIONS = """\
Answers why things wait in arctic_orchestration, an event-driven scheduler on Dagster. Begin with
what_waits; then explain_job or explain_schedule for one of them. Nothing here changes anything: the
answers name the commands for a person.
"""
_READS = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)
_Parameters = ParamSpec("_Parameters")

Location = Annotated[
    str | None, Field(description="The code location; not needed where only one ticks.")
]


def create_server(settings: Settings, database: Database) -> MCPServer:
    """Returns the server; it opens no connection before its first question.

    Args:
        settings: names the cluster.
        database: the state database; the caller closes it.
    """
    server = MCPServer("arctic", instructions=_INSTRUCTIONS)
    questions = Questions(settings, database)
    for question in (
        questions.what_waits,
        questions.explain_job,
        questions.explain_schedule,
        questions.why_not,
        questions.simulate,
    ):
        server.tool(annotations=_READS, structured_output=True)(_refusing(question))
    return server


class Questions:
    """The tools; the docstring of each is what an agent reads of it."""

    def __init__(self, settings: Settings, database: Database) -> None:
        self._cluster = settings.cluster
        self._database = database

    def what_waits(
        self,
        by_cause: Annotated[bool, Field(description="Count what waits for the same cause.")] = True,
        kind: Annotated[
            str | None,
            Field(description="job, arrival, run, task, merge_task, table or partition."),
        ] = None,
        location: Annotated[str | None, Field(description="Only of this code location.")] = None,
        cause: Annotated[str | None, Field(description="Only for this cause.")] = None,
        text: Annotated[str | None, Field(description="In the name, the id or the reason.")] = None,
        limit: Annotated[int, Field(ge=1, le=1_000)] = 50,
        after: Annotated[str | None, Field(description="next_after of the page before.")] = None,
    ) -> dict[str, Any]:
        """Everything that waits, oldest first: for what, since when, until when, held by whom."""
        wanted = WaitFilter.parse(kind=kind, location=location, cause=cause, text=text)
        with self._database.read() as tx:
            if by_cause:
                return waiting_by_cause(tx, self._cluster, utc_now(), wanted).to_json()
            page = waiting(tx, self._cluster, utc_now(), wanted, after=after, limit=limit)
            return page.to_json()

    def explain_job(self, job: str, location: Location = None) -> dict[str, Any]:
        """Why a job waits or how it ended: its trigger as a tree, its constraints, its history."""
        with self._database.read() as tx:
            place = location_by_name(tx, self._cluster, location, utc_now())
            found = explain(tx, ScheduleStore(), place, job, utc_now())
        return {"location": place.name, **explanation_document(found).to_json()}

    def explain_schedule(
        self,
        schedule: str,
        location: Location = None,
        partition: Annotated[str | None, Field(description="A partition of its target.")] = None,
    ) -> dict[str, Any]:
        """Why a schedule has not run yet: what has arrived, what is missing, what holds it."""
        with self._database.read() as tx:
            place = location_by_name(tx, self._cluster, location, utc_now())
            found = explain_schedule(
                tx, ScheduleStore(), place, schedule, utc_now(), partition=partition
            )
        return {"location": place.name, **explanation_document(found).to_json()}

    def why_not(
        self,
        schedule: str,
        at: Annotated[str, Field(description="A moment that has passed: 2026-01-01T04:00:00Z.")],
        location: Location = None,
    ) -> dict[str, Any]:
        """Why a schedule did not launch at a moment, from history or by simulating it again."""
        with naming("at", at):
            moment = parse_moment(at)
        with self._database.read() as tx:
            place = location_by_name(tx, self._cluster, location, utc_now())
            found = why_not(tx, ScheduleStore(), place, schedule, moment, utc_now())
        return {"location": place.name, **found.to_json()}

    def simulate(
        self,
        schedules: Annotated[str, Field(description="A file of schedules, in YAML.")],
        timeline: Annotated[str, Field(description="What happens: a JSON object a line.")],
    ) -> dict[str, Any]:
        """What the scheduler would decide, on a virtual clock; at most 1,000 decisions and 20 s."""
        (found,) = simulation.run({"files": [schedules], "rows": timeline.split("\n")})
        return found


def _refusing(
    question: Callable[_Parameters, dict[str, Any]],
) -> Callable[_Parameters, dict[str, Any]]:
    """Returns the question; a refusal is an answer that names field, value and expectation."""

    @wraps(question)
    def answer(*args: _Parameters.args, **values: _Parameters.kwargs) -> dict[str, Any]:
        try:
            for field, value in values.items():
                if isinstance(value, str) and not is_storable(value):
                    raise InvalidInput(field, value, "text in UTF-8 without the character 0")
            return question(*args, **values)
        except ArcticError as error:
            raise ToolError(str(error)) from error

    return answer
