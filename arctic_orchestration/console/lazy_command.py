"""A command whose module is imported when the command is called.

The help of the group above and the completion of the command's name need only the name and the help
line.
"""

import inspect
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand
from typer.main import get_group

from arctic_orchestration.console.checked_command import CheckedCommand


class LazyCommand(TyperCommand):
    """Stands in a group for a command, or a group of commands, that is not imported yet.

    Args:
        name: the name of the command.
        home: a function or a ``typer.Typer``, as ``package.module:attribute``.
        help: the line in the help of the group above. It is the whole help of a ``typer.Typer``;
            a function has a docstring that begins with it.
    """

    def __init__(self, name: str, home: str, *, help: str) -> None:
        super().__init__(name, help=help)
        self._home = home
        self._help = help
        self._loaded: Any = None

    def load(self) -> Any:
        """Imports the module and returns the command itself.

        Errors:
            ModuleNotFoundError: a package that the module needs is not installed.
        """
        if self._loaded is None:
            module, _, attribute = self._home.partition(":")
            part = getattr(import_module(module), attribute)
            above = typer.Typer()
            if isinstance(part, typer.Typer):
                above.add_typer(part, name=self.name, help=self._help)
            else:
                above.command(self.name)(part)
            _prepare(above)
            self._loaded = get_group(above).commands[str(self.name)]
        return self._loaded

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        """Returns the context of the command itself, which then parses, completes and runs."""
        return self.load().make_context(*arguments, **options)


def _prepare(app: typer.Typer) -> None:
    """Makes commands check arguments, and joins the lines of each paragraph of help.

    Typer keeps the line breaks of later paragraphs.
    """
    for command in app.registered_commands:
        command.cls = CheckedCommand
        text = command.help or inspect.getdoc(command.callback) or ""
        command.help = "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))
    for group in app.registered_groups:
        if group.typer_instance is not None:
            _prepare(group.typer_instance)
