"""The findings of ``arctic doctor``."""

from dataclasses import dataclass

GOOD, WARNING, BAD = "ok", "warning", "failed"
COLORS = {GOOD: "green", WARNING: "yellow", BAD: "red"}


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The finding of one check, and its remedy."""

    check: str
    status: str
    found: str
    advice: str = ""
