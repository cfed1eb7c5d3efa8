"""Takes the pictures of the README and of ``docs``, in Dagster's UI.

Those of the lake are of the instance that ``make demo`` left behind, in which nothing is started or
changed. Those of the run queue are of an instance made for them (``queue_pictures.py``), as is that
of a task's history (``task_pictures.py``). The page of ``arctic serve`` has a state of its own
(``waiting_picture.py``).
"""

import argparse
import shutil
from collections.abc import Sequence
from pathlib import Path

from browser import Page, Picture, page, webserver
from queue_pictures import take_queue_pictures
from task_pictures import take_task_pictures
from waiting_picture import take_waiting_picture

PICTURES = (
    Picture(
        file="runs.png",
        path="/runs",
        height=778,
        ready="document.body.innerText.split('Success').length > 4",
    ),
    Picture(
        file="asset-graph.png",
        path="/locations/__repository__@flights/asset-groups/flights/lineage",
        height=760,
        ready="""
            ['weather', 'flights', 'delays_by_route', 'delay_summary', 'nightly_summary'].every(
                name => document.body.innerText.includes(name))
            && document.querySelectorAll('svg path').length > 4
            && !document.body.innerText.includes('Loading')
        """,
    ),
    Picture(
        file="schedule.png",
        path="/assets/arctic/schedules/delay_summary?view=events",
        height=860,
        ready="document.body.innerText.includes('arctic jobs explain')",
    ),
    Picture(
        file="compaction.png",
        path="/assets/arctic/compaction/nyc/flights?view=overview",
        height=1300,
        ready="document.querySelectorAll('canvas').length > 4",
        click="""
            [...document.querySelectorAll('button')]
                .find(element => element.innerText.trim() === 'Plots')?.click()
        """,
    ),
)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--home", type=Path, default=Path(".demo"), help="folder of the demo")
    parser.add_argument("--into", type=Path, default=Path("docs"), help="folder for the pictures")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--queue", action="store_true", help="only those of the run queue")
    only.add_argument("--tasks", action="store_true", help="only that of a task's history")
    only.add_argument("--waiting", action="store_true", help="only that of what waits")
    given = parser.parse_args(arguments)
    home, into = given.home.resolve(), given.into.resolve()
    all_of_them = not (given.queue or given.tasks or given.waiting)
    if all_of_them and not (home / "finished").exists():
        parser.error(f"--home: {home} has no finished demo; run: make demo")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        parser.error("Chromium is not installed; install your system's package 'chromium'")
    into.mkdir(parents=True, exist_ok=True)
    with page(chromium) as tab:
        # Else an invitation to Dagster's community covers the first page.
        tab.before_each_page("localStorage.setItem('communityNux', 'true')")
        files = _of_the_demo(tab, home, into) if all_of_them else []
        files += take_queue_pictures(tab, into) if all_of_them or given.queue else []
        files += take_task_pictures(tab, into) if all_of_them or given.tasks else []
        files += take_waiting_picture(tab, into) if all_of_them or given.waiting else []
    for file in files:
        print(f"{file}: {file.stat().st_size:,} bytes")


def _of_the_demo(tab: Page, home: Path, into: Path) -> list[Path]:
    with webserver(home) as url:
        return [tab.take(url, picture, into) for picture in PICTURES]


if __name__ == "__main__":
    main()
