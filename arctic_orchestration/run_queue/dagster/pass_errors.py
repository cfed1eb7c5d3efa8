"""Collects the errors of a pass over the run queue instead of raising them."""

from arctic_orchestration.errors import ArcticError, described


class Trouble:
    """The errors of one pass, in words that stay the same while the errors do."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self.trace: Exception | None = None

    @property
    def text(self) -> str | None:
        """The errors for people, or None."""
        return "; ".join(self._parts) or None

    def add(self, error: Exception, consequence: str) -> None:
        """Adds an error; the consequence is a sentence."""
        self._parts.append(f"{described(error).rstrip('.')}. {consequence}")
        if not isinstance(error, ArcticError):
            self.trace = error
