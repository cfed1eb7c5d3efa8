"""The pages in a real browser: headless Chromium, without a word of it about errors."""

import importlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from arctic_orchestration.compaction.work.workers import WorkerInfo, record_heartbeat
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.triggers import on
from arctic_orchestration.service.access import AccessRules
from arctic_orchestration.service.app import create_app
from arctic_orchestration.settings import Settings
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.cli.tasked import Tasked, task
from arctic_orchestration_tests.patience import until
from arctic_orchestration_tests.schedules.simulated import World
from arctic_orchestration_tests.service.served import listening


@pytest.fixture(scope="module")
def chromium(pytestconfig: pytest.Config) -> str:
    """The program; the test is skipped without it, and fails in CI."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is not None:
        return found
    missing = "Chromium is not installed: sh tools/ensure_chromium"
    if os.environ.get("CI"):
        pytest.fail(missing)
    pytest.skip(missing)


class Tab:
    """A tab at the pages of a service."""

    def __init__(self, page: Any, url: str) -> None:
        self.page = page
        self.url = url

    def open(self, path: str) -> None:
        self.page.call("Page.navigate", url=self.url + path)
        self.until("document.readyState == 'complete'")

    def until(self, script: str) -> None:
        """Waits until an expression is true."""
        try:
            until(lambda: self.page.evaluate(script) is True, script)
        except AssertionError as error:
            shown = self.page.evaluate("document.body.innerText")
            raise AssertionError(f"{error}\n{shown}") from None

    @property
    def text(self) -> str:
        return str(self.page.evaluate("document.body.innerText"))

    def until_text(self, text: str) -> None:
        self.until(f"document.getElementById('main')?.innerText.includes({text!r})")

    def press(self, text: str) -> None:
        """Clicks a button as a person does, with the mouse."""
        script = f"""(() => {{
            const buttons = [...document.querySelectorAll('button')];
            const button = buttons.find(one => one.innerText == {text!r});
            const box = button.getBoundingClientRect();
            return [box.x + box.width / 2, box.y + box.height / 2];
        }})()"""
        x, y = self.page.evaluate(script)
        for kind in ("mousePressed", "mouseReleased"):
            self.page.call(
                "Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1
            )

    def errors(self) -> list[Any]:
        """What Chromium reported: exceptions, refusals of the policy, failed requests."""
        self.page.evaluate("1")
        return [
            one["params"]
            for one in self.page.events
            if one["method"] == "Runtime.exceptionThrown"
            or (one["method"] == "Log.entryAdded" and one["params"]["entry"]["level"] == "error")
        ]


@pytest.fixture
def app(database: Database) -> Any:
    return create_app(Settings.from_environment(), database, AccessRules())


@pytest.fixture
def tab(chromium: str, app: Any, pytestconfig: pytest.Config) -> Iterator[Tab]:
    """A tab; at its end the browser had nothing to complain about."""
    tools = str(pytestconfig.rootpath / "tools")
    sys.path.insert(0, tools)
    try:
        browser: Any = importlib.import_module("browser")
    finally:
        sys.path.remove(tools)
    with listening(app) as url, browser.page(chromium) as page:
        for domain in ("Page", "Runtime", "Log"):
            page.call(f"{domain}.enable")
        made = Tab(page, url)
        yield made
        assert made.errors() == []
        made.page.call("Page.navigate", url="about:blank")


def schedule(name: str = "a") -> Schedule:
    trigger = on.partitions("raw/a", count=2)
    return Schedule(name=name, target="rollup", trigger=trigger, enabled=True)


def test_an_open_page_shows_a_change_and_keeps_what_was_typed(
    tab: Tab, world: Callable[..., World]
) -> None:
    """A job arrives; the filter that was opened and typed into stays as it is."""
    here = world([schedule()])
    tab.open("/jobs")
    tab.until_text("No jobs")
    tab.page.evaluate("document.querySelector('details').open = true")
    tab.page.evaluate("document.getElementById('text').value = 'typed'")
    here.feed.arrive("raw/a", "monday")
    here.tick(1)
    tab.until_text("1 of 2 partitions of raw/a have arrived")
    assert tab.page.evaluate("document.querySelector('details').open") is True
    assert tab.page.evaluate("document.getElementById('text').value") == "typed"


def test_a_hidden_tab_is_not_brought_up_to_date(
    tab: Tab, app: Any, world: Callable[..., World]
) -> None:
    """It disconnects, and connects when it is seen again."""
    here = world([schedule()])
    pages = app.state.live._pages
    tab.open("/jobs")
    tab.until_text("No jobs")
    until(lambda: len(pages) == 1, "one page is live")
    _hide(tab, True)
    until(lambda: not pages, "no page is live")
    here.feed.arrive("raw/a", "monday")
    here.tick(1)
    assert "No jobs" in tab.text
    assert not pages
    _hide(tab, False)
    tab.until_text("1 of 2 partitions")


@pytest.mark.parametrize("scripts", [True, False])
def test_buttons_say_what_they_do_and_do_it(
    tab: Tab, world: Callable[..., World], scripts: bool
) -> None:
    """With and without scripts: a schedule is suspended after a confirmation, and enabled."""
    tab.page.call("Emulation.setScriptExecutionDisabled", value=not scripts)
    here = world([schedule()])
    here.feed.arrive("raw/a", "monday")
    here.tick(1)
    tab.open("/schedules/a?location=here")
    tab.press("Suspend…")
    tab.until_text("Its 1 waiting job is discarded")
    tab.press("Suspend a")
    tab.until_text("suspended since")
    tab.press("Enable")
    tab.until_text("enabled since")
    tab.open("/jobs")
    tab.until_text("discarded")
    tab.open("/audit")
    tab.until_text("loopback")
    assert "suspend" in tab.text


def test_a_form_with_a_reason_is_filled_in(tab: Tab, database: Database) -> None:
    """A task is skipped with a reason, after a confirmation; a worker is drained."""
    tasks = Tasked(database)
    tasks.declare(task("raw/a"))
    info = WorkerInfo(id="w", name="w", queues=(), parallelism=2, host="h", pid=9)
    with database.begin() as tx:
        record_heartbeat(tx, info)
    tab.open("/tasks/raw/a")
    tab.until_text("What it needs")
    tab.press("Skip…")
    assert "What it needs" in tab.text
    tab.page.evaluate("document.getElementById('reason').value = 'feed moves'")
    tab.press("Skip…")
    tab.until_text("It is not run in any cluster")
    tab.press("Skip raw/a")
    tab.until_text("feed moves (by loopback)")
    tab.press("Take off the skip list")
    tab.until("!document.getElementById('main').innerText.includes('feed moves (by')")
    tab.open("/workers/w")
    tab.press("Drain…")
    tab.until_text("It finishes 0 merges")
    tab.press("Drain worker w")
    tab.until_text("quiet, drained")


def test_what_the_policy_refuses_is_an_error(tab: Tab, world: Callable[..., World]) -> None:
    """The control of the other tests: a script in the page is reported, and does not run."""
    world([schedule()])
    tab.open("/jobs")
    tab.page.evaluate(
        "document.body.append(Object.assign(document.createElement('script'),"
        "{textContent: 'window.ran = true'}))"
    )
    (error,) = tab.errors()
    assert "Content Security Policy" in error["entry"]["text"]
    assert tab.page.evaluate("window.ran") is None
    tab.page.events.clear()


def _hide(tab: Tab, hidden: bool) -> None:
    """Headless Chromium hides no tab: what a script sees of a hidden one is made."""
    value = "true" if hidden else "false"
    tab.page.evaluate(
        f"Object.defineProperty(document, 'hidden', {{configurable: true, get: () => {value}}});"
        "document.dispatchEvent(new Event('visibilitychange'))"
    )
