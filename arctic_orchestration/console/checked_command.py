"""A command that refuses arguments which a database, file or driver cannot accept."""

from collections.abc import Iterator
from typing import Any

from typer.core import TyperCommand

from arctic_orchestration.errors import InvalidInput
from arctic_orchestration.event_log.escaping import is_storable

#: the maximum of an integer column
_LARGEST = 2**31 - 1


class CheckedCommand(TyperCommand):
    """Names the invalid argument, whichever part of the command would have failed."""

    def invoke(self, ctx: Any) -> Any:
        """Runs the command.

        Errors:
            InvalidInput: a number is too large; or a text that is no UTF-8 could not be used. A
                path may be such a text.
        """
        for name, value in self._given(ctx):
            if isinstance(value, int) and abs(value) > _LARGEST:
                raise InvalidInput(name, value, f"a number up to {_LARGEST}")
        try:
            return super().invoke(ctx)
        except UnicodeEncodeError:
            for name, value in self._given(ctx):
                if not is_storable(str(value)):
                    raise InvalidInput(name, str(value), "text in UTF-8") from None
            raise

    def _given(self, ctx: Any) -> Iterator[tuple[str, object]]:
        """Yields each value with its name for people: ``--limit``, ``NAME``."""
        for parameter in self.params:
            values = ctx.params.get(str(parameter.name))
            shown = max(parameter.opts, key=len)
            if parameter.param_type_name != "option":
                shown = parameter.metavar or shown.upper()
            for value in values if isinstance(values, list | tuple) else [values]:
                yield shown, value
