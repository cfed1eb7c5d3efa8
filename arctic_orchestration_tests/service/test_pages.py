"""The pages: what the API answers, as HTML, with every value as text."""

import base64
import hashlib
import re
import tomllib
from html.parser import HTMLParser
from itertools import pairwise
from urllib.parse import quote, unquote

import pytest
import sqlalchemy as sa
from fastapi.routing import APIRoute, iter_route_contexts
from starlette.testclient import TestClient

from arctic_orchestration.compaction.work.workers import WorkerInfo, record_heartbeat
from arctic_orchestration.console.terminal import visible
from arctic_orchestration.freshness import skip_list
from arctic_orchestration.schedules import control
from arctic_orchestration.schedules import location as locations
from arctic_orchestration.schedules.constraints import only
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.store import ScheduleStore
from arctic_orchestration.schedules.triggers import on
from arctic_orchestration.service.app import PAGES
from arctic_orchestration.service.pages import files, routes
from arctic_orchestration.service.pages.rendering import API, link
from arctic_orchestration.state import tables
from arctic_orchestration.state.audit import Actor
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.schedules.simulated import World, at
from arctic_orchestration_tests.service.conftest import MakeApi
from arctic_orchestration_tests.service.test_access import token
from arctic_orchestration_tests.waiting.planted import NOW, ODD, plant

#: beside what ODD has: what ends an element, an attribute, a script
MARKUP = f"<script>alert(1)</script>\"><img src=x onerror='a()'>&amp;{{{{ 7*7 }}}}{ODD}"
VISIBLE = MARKUP.replace("\x1b", r"\x1b").replace("\u202e", r"\u202e")
SCRIPTS = [f"/{name}" for name in files.FILES if name.endswith(".js") and name != "page.js"]
SCRIPTS.append("/page.js")
HTML = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
BRANCHES = on.all_of(
    on.any_of(on.partitions("raw/b", count=3), on.cron("0 3 * * *")), on.partitions(MARKUP, count=2)
)


class Text(HTMLParser):
    """The text of a page, its links, and its elements; fails if the elements are not nested."""

    VOID = ("meta", "link", "input", "br")

    def __init__(self, page: str) -> None:
        super().__init__()
        self.text = ""
        self.links: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self._open: list[str] = []
        self.feed(page)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag == "a":
            self.links.append(dict(attrs)["href"] or "")
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture
def pages(database: Database, api: MakeApi, monkeypatch: pytest.MonkeyPatch) -> TestClient:
    """A browser at a state in which something waits for each cause, with names that are markup."""
    plant(database)
    name, constraints = "branches", [only.concurrency(1)]
    made = Schedule(
        name=name, target="merge", trigger=BRANCHES, constraints=constraints, enabled=True
    )
    lake = World(database, [made], location="lake")
    lake.tick(0)
    lake.feed.arrive(MARKUP, MARKUP)
    lake.tick_without_submitting(10)
    ada = Actor(name=f"ada {MARKUP}", cluster="default")
    with database.begin() as tx:
        place = locations.locked(tx, "default", "here")
        control.enable(tx, ScheduleStore(), place, "stopped", at(3), actor=ada)
        worker = WorkerInfo(
            id="w", name=MARKUP, queues=(MARKUP,), parallelism=2, host=MARKUP, pid=9
        )
        record_heartbeat(tx, worker)
        skip_list.skip(tx, "child", MARKUP, by=ODD, cluster="default")
    for module in ("waiting", "jobs", "schedules", "ticks", "service", "access", "pages.rendering"):
        monkeypatch.setattr(
            f"arctic_orchestration.service.{module}.utc_now", lambda: NOW, raising=False
        )
    return browser(api())


def browser(client: TestClient) -> TestClient:
    client.base_url = "http://localhost:3001"
    client.headers.update(HTML)
    return client


def shown(client: TestClient, path: str) -> Text:
    """The text of a page that answers."""
    answer = client.get(path)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    return Text(answer.text)


def job_of(client: TestClient, schedule: str) -> str:
    found = client.get(f"{API}/jobs?schedule={schedule}").json()["jobs"]
    return str(found[0]["id"])


def test_the_first_page_has_each_cause_and_opens_to_its_members(pages: TestClient) -> None:
    """Each cause with its count, and each link with the things that wait for it."""
    found = pages.get(f"{API}/waiting?group_by=cause").json()
    first = shown(pages, "/")
    assert f"{found['count']} waiting" in first.text
    for group in found["groups"]:
        members = link("/waiting", kind=group["kind"], cause=group["cause"])
        assert members in first.links, group["cause"]
        page = shown(pages, members)
        for example in group["examples"]:
            assert visible(example["name"]) in page.text


def test_a_wait_shows_holder_end_and_commands(pages: TestClient) -> None:
    """One that a group holds, one that a known moment ends, one whose end is unknown."""
    held = shown(pages, "/waiting?cause=concurrency:group:spark")
    assert link("/jobs", job_of(pages, "first")) in held.links
    assert f"arctic jobs cancel {job_of(pages, 'second')}" in held.text
    # Tokyo's window opens at 13:00 UTC; it is one minute past midnight.
    night = shown(pages, "/waiting?cause=window&kind=job").text
    assert "2026-01-01 13:00:00Z (known: opens), in 12h" in night
    paused = shown(pages, "/waiting?cause=paused").text
    assert "unknown" in paused
    assert "arctic queues resume low" in paused


def test_pages_of_waits_follow_each_other(pages: TestClient) -> None:
    """The link keeps the filters; all pages together have each wait once."""
    expected = pages.get(f"{API}/waiting?limit=1000").json()["waits"]
    path, read = "/waiting?limit=4", []
    while path:
        page = shown(pages, path)
        read += [tag for tag, attributes in page.elements if tag == "h2"]
        path = next((to for to in page.links if "cursor=" in to and to.startswith("/w")), "")
        assert not path or path.startswith("/waiting?limit=4&cursor=")
    assert len(read) == len(expected)


def test_a_schedule_shows_its_trigger_as_a_tree(pages: TestClient) -> None:
    """What arrived and what is missing at each branch, verdicts, ten ticks, changes, commands."""
    page = shown(pages, "/schedules/branches?location=lake")
    for part in (
        "0 of 3 partitions of raw/b have arrived",
        "arrived: 1 event, 1 partition, at 2026-01-01 00:00:10Z",
        "next tick 2026-01-01 03:00:00Z",
        "concurrency limit 1",
        "2026-01-10 03:00:00Z",
        "arctic schedules suspend branches --location lake",
    ):
        assert part in page.text, part
    assert "2026-01-11 03:00:00Z" not in page.text
    assert link("/jobs", job_of(pages, "branches")) in page.links
    assert "ada" in shown(pages, "/schedules/stopped?location=here").text


def test_a_job_shows_why_it_waits_and_its_events(pages: TestClient) -> None:
    page = shown(pages, f"/jobs/{job_of(pages, 'half')}")
    assert "its trigger is not satisfied yet: 1 of 2 partitions of raw/a have arrived" in page.text
    assert "monday" in page.text
    moved = shown(pages, f"/jobs/{job_of(pages, 'at_night')}").text
    assert "hold" in moved


def test_what_this_version_cannot_read_is_shown_as_such(
    pages: TestClient, database: Database
) -> None:
    """A job of an older version has no tree; a schedule of a later package has no explanation."""
    job = job_of(pages, "first")
    change = {"Content-Type": "application/merge-patch+json"}
    path = f"{API}/schedules/first?location=here"
    assert pages.patch(path, json={"priority": 5}, headers=change).status_code == 200
    assert "belongs to another version" in shown(pages, f"/jobs/{job}").text
    with database.begin() as tx:
        tx.execute(sa.update(tables.schedules).values(spec='{"name": "s", "later": 1}'))
    unreadable = "This version of the package cannot read it"
    assert unreadable in shown(pages, "/schedules/half?location=here").text
    assert unreadable in shown(pages, "/schedules").text
    assert pages.get(f"/jobs/{job}").status_code == 409


def test_filters_stand_in_the_url(pages: TestClient) -> None:
    """A field that a form left empty filters nothing."""
    for path, present, absent in (
        ("/schedules?status=suspended", "No schedules", "at_night"),
        ("/schedules?name=b*", "branches", "at_night"),
        ("/schedules?name=&status=&location=lake", "branches", "at_night"),
        ("/jobs?schedule=half", "half", "at_night"),
        ("/audit?feature=&actor=nobody", "No changes", "ada"),
    ):
        text = shown(pages, path).text
        assert present in text, path
        assert absent not in text, path


def every_page(client: TestClient) -> list[str]:
    """The URLs of a page of each route, each with something odd if it shows names of people."""
    task = client.get(f"{API}/compaction/tasks").json()["tasks"][0]["task"]
    event = next(to for to in shown(client, "/events?location=lake").links if "/events/" in to)
    return [
        "/waiting?group_by=cause", "/waiting?limit=1000", "/schedules",
        "/schedules/stopped?location=here",
        "/schedules/branches?location=lake", "/jobs", f"/jobs/{job_of(client, 'branches')}",
        "/consumers", "/consumers/totals", "/compaction/tables", "/compaction/tables/lake.resting",
        "/compaction/queues", "/compaction/queues/big", "/compaction/tasks",
        f"/compaction/tasks/{task}", "/resources", "/tasks", "/tasks/child",
        "/task-graph?task=child", "/skip-list", "/events", event, "/workers", "/workers/w",
        "/audit",
    ]  # fmt: skip


def assert_no_element_of_a_name(page: Text, path: str) -> None:
    """What a page consists of is its own, and it has no character that acts on a screen."""
    tags = {tag for tag, _ in page.elements}
    assert not {"img", "style"} & tags, path
    scripts = [attributes for tag, attributes in page.elements if tag == "script"]
    # The page of an error has none.
    assert [one["src"] for one in scripts] in (SCRIPTS, []), path
    assert not any(name.startswith("on") or name == "style" for _, a in page.elements for name in a)
    assert not {"\x1b", "\u202e"} & set(page.text), path


def routes_of_pages(method: str) -> list[APIRoute]:
    """Those of pages and buttons."""
    listed = [route for router in PAGES[1:] for route in router.routes]
    return [one for one in listed if isinstance(one, APIRoute) and method in (one.methods or ())]


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("odd", [f"{MARKUP}\n", MARKUP.replace("/", "")])
def test_odd_addresses_are_text_everywhere(pages: TestClient, method: str, odd: str) -> None:
    """A name, a parameter and a cursor that nothing has, at each page and button.

    A name with a slash is the address of nothing; without one it is a name.
    """
    quoted = quote(odd, safe="")
    form = {"Content-Type": "application/x-www-form-urlencoded", "Sec-Fetch-Site": "same-origin"}
    data = f"confirmed=yes&{quoted}={quoted}" if method == "POST" else None
    for route in routes_of_pages(method):
        path = re.sub(r"{\w+}", quoted, route.path)
        for query in ("", f"?{quoted}={quoted}", f"?location={quoted}&cursor={quoted}"):
            answer = pages.request(method, path + query, headers=form, content=data)
            assert answer.status_code < 500, (path, query)
            assert_no_element_of_a_name(Text(answer.text), path + query)


def test_names_are_text_everywhere(pages: TestClient) -> None:
    """No name makes an element; controls are visible; headings go down one step at a time."""
    texts = {}
    visited = every_page(pages)
    for route in routes_of_pages("GET"):
        whole = [path.partition("?")[0] for path in ("/", *visited)]
        if route.path.split("/")[1] in ("queues", "groups", "runs"):
            continue  # They need an instance of Dagster: test_run_queue.py.
        assert any(route.path_regex.fullmatch(path) for path in whole), route.path
    for path in visited:
        page = shown(pages, path)
        assert_no_element_of_a_name(page, path)
        levels = [int(tag[1]) for tag, _ in page.elements if tag in ("h1", "h2", "h3")]
        assert levels.count(1) == 1
        assert all(below - above <= 1 for above, below in pairwise(levels)), path
        texts[path.partition("?")[0]] = page.text
    for path in (
        "/schedules", "/schedules/branches", "/jobs", "/events", "/tasks", "/tasks/child",
        "/skip-list", "/workers", "/workers/w",
    ):  # fmt: skip
        assert VISIBLE in texts[path], path
    for path in ("/waiting", "/skip-list", "/consumers/totals", "/audit"):
        assert ODD.replace("\x1b", r"\x1b").replace("\u202e", r"\u202e") in texts[path], path
    echoed = shown(pages, link("/waiting", text=MARKUP))
    values = [attributes.get("value") for tag, attributes in echoed.elements if tag == "input"]
    assert VISIBLE in values


def test_every_page_is_json_by_accept(pages: TestClient) -> None:
    """Of the API's resource, with the same parameters; whatever a browser prefers is HTML."""
    json = {"Accept": "application/json"}
    for path in (
        *every_page(pages),
        "/schedules?name=b*",
        "/events?kind=partition",
        "/tasks?fresh=false",
    ):
        answer = pages.get(path, headers=json, follow_redirects=False)
        assert (answer.status_code, unquote(answer.headers["location"])) == (
            307,
            unquote(f"{API}{path}"),
        )
        assert answer.headers["vary"] == "Accept"
        of_api = pages.get(f"{API}{path}")
        assert of_api.status_code == 200, path
        assert of_api.headers["content-type"] == "application/json"
        assert pages.get(path, headers=json).json().keys() == of_api.json().keys()
        assert unquote(f"{API}{path}") in [unquote(to) for to in shown(pages, path).links], path
    either = pages.get("/jobs", headers={"Accept": "application/json;q=0.5, text/html"})
    assert either.headers["content-type"].startswith("text/html")
    described = {str(one.path) for one in iter_route_contexts(pages.app.routes)}  # type: ignore[attr-defined]
    for context in iter_route_contexts(routes.router.routes):
        assert f"{API}{context.path}" in described


def test_an_error_is_a_page_for_a_browser(pages: TestClient) -> None:
    """And a problem for a program; below the API always."""
    for path, status, part in (
        ("/nowhere", 404, "404 Not Found"),
        ("/schedules/nowhere?location=here", 404, "nowhere"),
        ("/jobs/%3Cb%3E", 404, "<b>"),
        ("/waiting?kind=sloth", 422, "sloth"),
        ("/schedules?color=blue", 422, "color"),
        ("/waiting?text=%00", 400, "character 0"),
    ):
        answer = pages.get(path)
        assert answer.status_code == status, path
        assert part in Text(answer.text).text
        assert answer.headers["x-request-id"] in answer.text
        program = pages.get(path, headers={"Accept": "*/*"})
        assert program.headers["content-type"] == "application/problem+json"
        of_api = pages.get(f"{API}{path}")
        assert of_api.headers["content-type"] == "application/problem+json"


def test_a_page_needs_the_scope_of_its_resource(
    pages: TestClient, database: Database, api: MakeApi
) -> None:
    """A token for one room gets that room's pages; a location's, what is of it."""
    only_jobs = browser(api(token=token(database, "jobs:read")))
    paths = ("/", "/waiting", "/schedules", "/schedules/half?location=here", "/audit")
    assert {only_jobs.get(path).status_code for path in paths} == {403}
    assert only_jobs.get("/jobs").status_code == 200
    here = browser(api(token=token(database, "schedules:read@location=here", name="here")))
    assert "branches" not in shown(here, "/schedules").text
    assert here.get("/schedules/branches?location=lake").status_code == 403
    nobody = browser(api())
    assert {nobody.get(path).status_code for path in (*paths, "/jobs")} == {401}
    assert nobody.get("/page.css").status_code == 200


def test_a_page_runs_its_own_scripts_alone_and_stands_in_no_frame(pages: TestClient) -> None:
    """Nothing inline, nothing evaluated, nothing of elsewhere."""
    for path in ("/", "/nowhere", "/page.css", f"{API}/jobs"):
        headers = pages.get(path).headers
        policy = headers["content-security-policy"].split("; ")
        assert {"default-src 'self'", "frame-ancestors 'none'", "script-src 'self'"} <= set(policy)
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"


def test_styles_and_templates_are_served_and_in_the_wheel(
    pages: TestClient, pytestconfig: pytest.Config
) -> None:
    """The wheel has what pyproject.toml names."""
    for name, media_type in files.FILES.items():
        assert pages.get(f"/{name}").headers["content-type"].startswith(media_type)
    for tag, attributes in shown(pages, "/jobs").elements:
        if tag == "script" and "/vendor/" in (attributes["src"] or ""):
            digest = hashlib.sha256(pages.get(attributes["src"] or "").content).digest()
            expected = f"sha256-{base64.b64encode(digest).decode()}"
            assert attributes["integrity"] == expected, attributes["src"]
    root = pytestconfig.rootpath
    project = tomllib.loads((root / "pyproject.toml").read_text())
    patterns = project["tool"]["setuptools"]["package-data"]["arctic_orchestration"]
    package = root / "arctic_orchestration"
    packed = {path for pattern in patterns for path in package.glob(pattern)}
    pages_folder = package / "service" / "pages"
    present = {
        path for path in pages_folder.rglob("*.*") if not path.name.endswith((".py", ".pyc"))
    }
    assert {"page.css", "icon.svg", "base.html"} <= {path.name for path in present}
    assert present <= packed
