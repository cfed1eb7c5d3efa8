"""The ticks of a cron trigger, requested and shown in short: moments of 2026, in UTC."""

from datetime import UTC, datetime

from arctic_orchestration.schedules.triggers.cron import Cron

POLICIES = ("dagster", "first", "second", "both", "skip")


def moment(text: str) -> datetime:
    """``03-08 07:00`` of 2026, or a whole date."""
    if text.count("-") == 1:
        text = f"2026-{text}"
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def ticks(cron: Cron, begin: datetime, end: datetime, name: str = "s") -> list[datetime]:
    """The ticks in ``(begin, end]``, requested one by one."""
    found: list[datetime] = []
    while (at := cron.next_tick(found[-1] if found else begin, name)) is not None and at <= end:
        found.append(at)
    return found


def shown(moments: list[datetime]) -> list[str]:
    return [f"{at:%m-%d %H:%M}" for at in moments]


def due(cron: Cron, due_at: str, now: str) -> tuple[list[str], str | None]:
    """The ticks that are delivered when a look comes late, and the next one."""
    found = cron.ticks_due(moment(due_at), moment(now), "s")
    return shown(list(found.deliver)), shown([found.next_at])[0] if found.next_at else None
