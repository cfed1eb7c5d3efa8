"""``python -m arctic_orchestration.run_launcher.retire``: lets every run host of this user end.

Their runs go on; the next run of each code location starts a new host. A signal to all processes
of that name would reach the runs as well.
"""

from arctic_orchestration.run_launcher import messages

_SECONDS = 10.0


def main() -> None:
    """Asks all hosts to end when their runs have, and prints how many they are."""
    request = {"do": "retire", "why": "it was asked to end by a command"}
    count = sum(answer["ok"] for answer in messages.ask_all(request, _SECONDS))
    print(f"{count} run host{'' if count == 1 else 's'} will end; runs go on")


if __name__ == "__main__":
    main()
