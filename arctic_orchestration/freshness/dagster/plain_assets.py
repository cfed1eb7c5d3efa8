"""What the Dagster instance of the environment knows of assets that are no tasks."""

import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime

from arctic_orchestration.errors import ArcticError


@dataclass
class PlainAssets:
    """What the Dagster instance of ``DAGSTER_HOME`` knows of assets that are no tasks."""

    #: whether no instance was available
    unknown: bool = field(default=False, init=False)

    def known(self, assets: Sequence[str]) -> frozenset[str]:
        """Returns all of them: the assets of locations are unknown here.

        One without a materialization may not exist, which :meth:`TaskOverview.may_be_none` returns.
        """
        return frozenset(assets)

    def materialized_at(self, assets: Sequence[str]) -> Mapping[str, datetime]:
        """Returns their last materializations, by the instance's event log."""
        if not os.environ.get("DAGSTER_HOME"):
            self.unknown = True
            return {}
        # Dagster takes seconds to import, and is not needed if all parents are tasks.
        import dagster as dg

        from arctic_orchestration.event_log.dagster_log import DagsterLog

        try:
            with dg.DagsterInstance.get() as instance, closing(DagsterLog(instance)) as log:
                return log.materialized_at(assets)
        except (ArcticError, dg.DagsterError):
            self.unknown = True
            return {}
