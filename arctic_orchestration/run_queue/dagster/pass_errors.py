"""What goes wrong in a pass over the run queue, told without being raised."""

from arctic_orchestration.errors import ArcticError


class Trouble:
    """What went wrong in one pass, in words that stay the same while the trouble does."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self.trace: Exception | None = None

    @property
    def text(self) -> str | None:
        """For people; none: nothing went wrong."""
        return "; ".join(self._parts) or None

    def add(self, error: Exception, consequence: str) -> None:
        """Something went wrong; the consequence is a sentence."""
        expected = isinstance(error, ArcticError)
        cause = str(error) if expected else f"{type(error).__name__}: {error}"
        self._parts.append(f"{cause.rstrip('.')}. {consequence}")
        if not expected:
            self.trace = error
