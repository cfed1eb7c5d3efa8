"""``python -m arctic_orchestration.cli``: the command, if its script is not on the PATH."""

from arctic_orchestration.cli.main import main

main()
