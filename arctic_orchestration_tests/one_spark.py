"""Sends all files that work with the session of Spark of their process to one xdist worker.

Each worker that has a session spends 15 s of CPU on its start, and as much again until its JVM has
compiled what the tests use.
"""

import re
from functools import cache
from pathlib import Path

from xdist.scheduler import LoadFileScheduling

_ROOT = Path(__file__).parents[1]
_PARAMETER = re.compile(r"\b(spark|classic_spark|connect_spark|connect_url): ")


@cache
def uses_spark(file: Path) -> bool:
    """Returns whether tests of a file take the session of their process."""
    return _PARAMETER.search(file.read_text()) is not None


class OneSpark(LoadFileScheduling):  # type: ignore[misc]
    """As ``--dist loadfile``, but for those files, which are sent together."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return "spark" if uses_spark(_ROOT / file) else file
