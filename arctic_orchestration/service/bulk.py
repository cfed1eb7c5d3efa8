"""Actions on everything that a filter matches: first a count, then the change."""

from collections.abc import Sequence
from typing import Annotated

from fastapi import Depends, Query

from arctic_orchestration.errors import ArcticError, InvalidInput, TransitionRefused
from arctic_orchestration.service.documents import BulkResult, Refusal

#: how many names and refusals an answer lists
_LISTED = 100


class Options:
    """Whether an action is carried out, and on how many at most."""

    def __init__(
        self,
        dry_run: Annotated[bool, Query(description="Only count.")] = True,
        at_most: Annotated[
            int | None, Query(ge=0, description="Change nothing if more than this match.")
        ] = None,
    ) -> None:
        if not dry_run and at_most is None:
            raise InvalidInput("at_most", None, "the count of a dry run, where dry_run is false")
        self.dry_run = dry_run
        self.at_most = at_most


BulkOptions = Annotated[Options, Depends()]


class Progress:
    """The result of an action so far.

    Errors:
        TransitionRefused: more match than the caller expects; nothing was changed.
    """

    def __init__(self, action: str, options: Options, names: Sequence[str]) -> None:
        if not options.dry_run and options.at_most is not None and len(names) > options.at_most:
            raise TransitionRefused(
                f"{len(names)} match now, and at_most is {options.at_most}: count again. Nothing "
                "was changed"
            )
        self._action, self._options, self._names = action, options, names
        self._refused: list[Refusal] = []
        self.changed = 0

    def refuse(self, location: str, name: str, error: ArcticError) -> None:
        """Records what could not be changed."""
        if len(self._refused) < _LISTED:
            self._refused.append(Refusal(location=location, name=name, reason=str(error)))

    def result(self) -> BulkResult:
        """Returns the answer."""
        return BulkResult(
            action=self._action,
            dry_run=self._options.dry_run,
            matched=len(self._names),
            first=list(self._names[:_LISTED]),
            changed=self.changed,
            refused=self._refused,
        )
