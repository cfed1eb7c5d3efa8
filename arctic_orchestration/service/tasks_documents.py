"""The answers about tasks with fresh parents, in the forms of ``arctic tasks ... --json``."""

from typing import Annotated

from pydantic import Field

from arctic_orchestration.documents import At, Document
from arctic_orchestration.freshness.views.documents import (
    ChildDocument,
    StepDocument,
    SubmissionDocument,
    TaskDocument,
)
from arctic_orchestration.service.documents import Page
from arctic_orchestration.specification import Specification

#: the maximum number of tasks and batches that one request names
_MOST = 1_000
_Names = Annotated[list[Annotated[str, Field(min_length=1)]], Field(min_length=1, max_length=_MOST)]


class TaskPage(Page):
    """Tasks by name."""

    tasks: list[TaskDocument]


class TaskDetails(TaskDocument):
    """A task with its children, its last submissions and steps."""

    children: list[ChildDocument]
    submissions: list[SubmissionDocument]
    history: list[StepDocument]
    #: why it runs or does not, as sentences
    explanation: list[str]


class SubmitForm(Specification):
    """Tasks to bring up to date."""

    #: tasks, or batches: all of their tasks
    names: _Names
    #: what was made of them before now does not count
    force: Annotated[bool, Field(strict=True)] = False
    #: the maximum age, instead of the tasks' own
    freshness_hours: Annotated[float, Field(strict=True, allow_inf_nan=False)] | None = None
    #: of all that is named, only these
    only: _Names | None = None
    #: also all ancestors, in any location
    with_parents: Annotated[bool, Field(strict=True)] = False
    #: needed only if several locations declare a task
    location: str | None = None


class SubmissionsDocument(Document):
    """The submissions of one request."""

    submissions: list[SubmissionDocument]


class SkipForm(Specification):
    """Why a task is skipped."""

    reason: Annotated[str, Field(min_length=1, max_length=1_000)]


class SkipDocument(Document):
    """A task on the skip list."""

    task: str
    reason: str
    by: str
    at: At


class SkipList(Document):
    """Tasks that are not to run for now, in any cluster."""

    skipped: list[SkipDocument]
