"""``python -m arctic_orchestration.run_launcher.retire``: retires every run host of this user.

Their runs go on; the next run of each code location starts a new host. A signal to all processes
of that name would reach the runs as well.
"""

from arctic_orchestration.run_launcher import messages

_SECONDS = 10.0


def main() -> None:
    """Makes all hosts end after their runs, and prints their number."""
    request = {"do": "retire", "why": "a command requested its end"}
    count = sum(answer["ok"] for answer in messages.call_all(request, _SECONDS))
    print(f"{count} run host{'' if count == 1 else 's'} will end; runs go on")


if __name__ == "__main__":
    main()
