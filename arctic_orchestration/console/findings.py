"""What the checks of ``arctic doctor`` find."""

from dataclasses import dataclass

GOOD, WARNING, BAD = "ok", "warning", "failed"
COLORS = {GOOD: "green", WARNING: "yellow", BAD: "red"}


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What one check found, and what to do about it."""

    check: str
    status: str
    found: str
    advice: str = ""
