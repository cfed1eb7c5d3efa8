"""The findings of ``arctic doctor``."""

from collections.abc import Sequence
from dataclasses import dataclass

GOOD, WARNING, BAD = "ok", "warning", "failed"
COLORS = {GOOD: "green", WARNING: "yellow", BAD: "red"}
#: the number of texts in one line
SHOWN = 5


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The finding of one check, and its remedy."""

    check: str
    status: str
    found: str
    advice: str = ""


def good(check: str, found: str) -> Finding:
    """Returns that a check found nothing to do."""
    return Finding(check=check, status=GOOD, found=found)


def warning(check: str, found: str, advice: str = "") -> Finding:
    """Returns something that needs attention but is no failure."""
    return Finding(check=check, status=WARNING, found=found, advice=advice)


def bad(check: str, found: str, advice: str) -> Finding:
    """Returns a failure."""
    return Finding(check=check, status=BAD, found=found, advice=advice)


def some(texts: Sequence[str]) -> str:
    """Joins the first five of some texts, and says how many more there are."""
    more = f"; and {len(texts) - SHOWN} more" if len(texts) > SHOWN else ""
    return "; ".join(texts[:SHOWN]) + more
