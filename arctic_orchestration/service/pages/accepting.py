"""Which form a client prefers: HTML for people, the changes of a page, or JSON."""

from fastapi import Request


def prefers_json(request: Request) -> bool:
    """Returns whether ``Accept`` puts JSON before HTML."""
    return _quality(request, "application/json") > _quality(request, "text/html")


def names_html(request: Request) -> bool:
    """Returns whether ``Accept`` names HTML, as a browser does, or the changes of a page."""
    return _quality(request, "text/html") > 0 or wants_events(request)


def wants_events(request: Request) -> bool:
    """Returns whether ``Accept`` names server-sent events, as an open page does."""
    return _quality(request, "text/event-stream") > 0


def _quality(request: Request, media_type: str) -> float:
    """Returns the ``q`` of a media type that ``Accept`` names, or 0."""
    for entry in request.headers.get("accept", "").split(","):
        name, *fields = (part.strip().lower() for part in entry.split(";"))
        if name == media_type:
            given = next((field[2:] for field in fields if field.startswith("q=")), "1")
            try:
                return float(given)
            except ValueError:
                return 0
    return 0
