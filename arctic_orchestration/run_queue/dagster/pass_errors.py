"""Collects the errors of a pass over the run queue instead of raising them."""

from arctic_orchestration.errors import ArcticError


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
        expected = isinstance(error, ArcticError)
        cause = str(error) if expected else f"{type(error).__name__}: {error}"
        self._parts.append(f"{cause.rstrip('.')}. {consequence}")
        if not expected:
            self.trace = error
