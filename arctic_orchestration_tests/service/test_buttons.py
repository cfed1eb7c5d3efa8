"""The buttons of pages: forms that do what the API does, and say before what that is."""

from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import pytest
from httpx2 import Response
from starlette.testclient import TestClient

from arctic_orchestration.clock import utc_now
from arctic_orchestration.compaction import tables
from arctic_orchestration.compaction.work.workers import WorkerInfo, record_heartbeat
from arctic_orchestration.service.pages.rendering import API
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.schedules.simulated import World
from arctic_orchestration_tests.service.conftest import MakeApi
from arctic_orchestration_tests.service.test_access import schedule, token
from arctic_orchestration_tests.service.test_pages import HTML, Text, browser, shown
from arctic_orchestration_tests.waiting.planted import ODD, plant

FORM = {"Content-Type": "application/x-www-form-urlencoded", "Sec-Fetch-Site": "same-origin"}


class Forms(HTMLParser):
    """The forms of a page: where each is sent, and its fields."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.forms: dict[str, dict[str, str]] = {}
        self._action = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "form":
            self._action = given["action"]
            if given["method"] == "post":
                self.forms[self._action] = {}
        # A box that nobody has checked is not sent.
        if tag == "input" and self._action in self.forms and given.get("type") != "checkbox":
            self.forms[self._action][given["name"]] = given["value"]


def press(client: TestClient, page: str, action: str, **fields: str) -> Response:
    """Presses the button of a page; returns the answer, which may be a confirmation."""
    (target,) = [to for to in Forms(client.get(page).text).forms if f"{action}?" in f"{to}?"]
    given = Forms(client.get(page).text).forms[target]
    return client.post(target, data={**given, **fields}, headers=FORM)


def confirm(client: TestClient, answer: Response) -> Response:
    """Presses the button of a confirmation."""
    ((target, fields),) = Forms(answer.text).forms.items()
    return client.post(target, data=fields, headers=FORM)


@pytest.fixture
def client(database: Database, api: MakeApi) -> TestClient:
    plant(database)
    with database.begin() as tx:
        # The rest that was planted is over by now.
        tables.rest(tx, "lake.resting", "no file can be read", utc_now())
    return browser(api())


def job_of(client: TestClient, name: str) -> Any:
    return client.get(f"{API}/jobs?schedule={name}").json()["jobs"][0]


def test_each_button_does_what_the_api_does(client: TestClient) -> None:
    """Dangerous ones after a page that says what they do; then the page of the object follows."""
    half, night = job_of(client, "half")["id"], job_of(client, "at_night")["id"]
    task = client.get(f"{API}/compaction/tasks").json()["tasks"][0]["task"]
    for page, action, effect, expected in (
        ("/schedules/half?location=here", "suspend", "1 waiting job is discarded", "suspended"),
        ("/schedules/half?location=here", "enable", None, "enabled"),
        ("/schedules/half?location=here", "launch", "a job without events is launched", "enabled"),
        (f"/jobs/{night}", "launch", "past its constraints", "launched manually"),
        (f"/jobs/{job_of(client, 'second')['id']}", "cancel", "its 1 event with it", "discarded"),
        ("/compaction/queues/big", "drain", "It takes no new tasks", "draining"),
        ("/compaction/queues/big", "resume", None, "open"),
        ("/compaction/queues/big", "pause", "Waiting: 1 task.", "paused"),
        (f"/compaction/tasks/{task}", "cancel", "2 files are not planned again", "canceled"),
        ("/compaction/tables/lake.resting", "wake", None, "ended its rest"),
        ("/consumers/totals", "retry", None, "0 given up"),
        ("/consumers/totals", "reset", "forgets all: 1 acknowledged", "0 acknowledged, 0 waiting"),
    ):
        answer = press(client, page, action)
        if effect is not None:
            assert effect in Text(answer.text).text, (page, action)
            assert "Nothing has been changed yet" in answer.text
            answer = confirm(client, answer)
        assert answer.status_code == 200, (page, action, answer.text)
        assert answer.history[0].status_code == 303, (page, action)
        assert answer.url.raw_path.decode() == page
        assert expected in Text(answer.text).text, (page, action)
    assert "discarded" in shown(client, f"/jobs/{half}").text


def test_one_partition_of_many_is_delivered_again(client: TestClient) -> None:
    """A form names it, whatever its name is."""
    answer = client.post("/consumers/totals/retry", data={"partition": ODD}, headers=FORM)
    assert "0 given up" in Text(answer.text).text


def test_a_merge_task_has_another_level(client: TestClient) -> None:
    """A level that is no number is refused as the API does."""
    task = client.get(f"{API}/compaction/tasks").json()["tasks"][0]
    page = f"/compaction/tasks/{task['task']}"
    assert press(client, page, "prioritize", level="7").url.path == page
    assert client.get(f"{API}{page}").json()["level"] == 7
    assert press(client, page, "prioritize", level="1e3").status_code == 422


def test_a_task_is_submitted_and_skipped(client: TestClient, database: Database) -> None:
    """With its ancestors if that box is checked; under its ETag; the reason is needed."""
    page = "/tasks/child"
    asked = press(client, page, "submit", with_parents="yes", force="yes")
    assert "Submit child and 1 ancestor?" in Text(asked.text).text
    assert "child runs even if it is fresh. Each ancestor" in Text(asked.text).text
    done = confirm(client, asked)
    assert done.url.path == page
    assert "loopback" in Text(done.text).text
    made = client.get(f"{API}/tasks/elsewhere").json()["live_submissions"]
    assert [entry["by"] for entry in made] == ["loopback"]
    made = client.get(f"{API}{page}").json()["submissions"]
    assert [entry["by"] for entry in made if entry["force"]] == ["loopback"]
    alone = press(client, page, "submit")
    assert "child runs unless it is fresh." in Text(alone.text).text
    asked = press(client, "/tasks/elsewhere", "skip", reason="feed moves")
    assert "Needed by 1 task" in Text(asked.text).text
    assert client.get(f"{API}/skip-list").json()["skipped"] == []
    assert "feed moves (by loopback)" in Text(confirm(client, asked).text).text
    assert "feed moves" in shown(client, "/skip-list").text
    assert confirm(client, asked).status_code == 412
    assert press(client, "/tasks/elsewhere", "unskip").url.path == "/tasks/elsewhere"
    assert client.get(f"{API}/skip-list").json()["skipped"] == []
    for reason in ("", "x" * 1_001):
        fields = {"reason": reason, "confirmed": "yes"}
        bad = client.post("/tasks/elsewhere/skip", data=fields, headers=FORM)
        assert (bad.status_code, "reason" in bad.text) == (422, True)


def test_a_worker_is_drained_resumed_and_stopped(client: TestClient, database: Database) -> None:
    """The buttons of its page are those that change something; who may not order sees none."""
    for id, queues in (("w1", ("big",)), ("w2", ())):
        info = WorkerInfo(id=id, name=f"name {id}", queues=queues, parallelism=2, host="h", pid=9)
        with database.begin() as tx:
            record_heartbeat(tx, info)
    for action, effect, order in (
        ("drain", "It finishes 0 merges, and claims nothing", "quiet"),
        ("resume", None, "run"),
        ("stop", "It puts 0 merges back", "stop"),
    ):
        answer = press(client, "/workers/w1", action)
        if effect is not None:
            assert effect in Text(answer.text).text
            answer = confirm(client, answer)
        assert answer.url.path == "/workers/w1"
        assert client.get(f"{API}/workers/w1").json()["order"] == order
        assert f"/workers/w1/{action}" not in Forms(answer.text).forms
    assert client.post("/workers/w1/drain", headers=FORM).status_code == 200
    bearer = token(database, "workers:write@queue=big", "workers:read", name="big")
    client.headers["Authorization"] = f"Bearer {bearer}"
    assert "/workers/w1/drain" in Forms(client.get("/workers/w1").text).forms
    assert Forms(client.get("/workers/w2").text).forms == {}


def test_an_action_on_a_filter_counts_first(client: TestClient, database: Database) -> None:
    """And changes nothing if more match by then than were shown."""
    page = "/jobs?state=waiting&schedule=half"
    asked = press(client, page, "cancel")
    assert "Cancel 1 job?" in Text(asked.text).text
    assert job_of(client, "half")["id"] in asked.text
    more = client.post("/job-actions/cancel?state=waiting", data={"at_most": "1"}, headers=FORM)
    assert more.status_code == 409
    assert "4 match now, and at_most is 1" in Text(more.text).text
    assert job_of(client, "half")["state"] == "waiting_trigger"
    done = confirm(client, asked)
    assert "1 of 1 job changed" in Text(done.text).text
    assert job_of(client, "half")["state"] == "discarded"
    none = press(client, page, "cancel")
    assert "Nothing matches" in none.text
    for wrong in ("", "-1", "1.5", "\u0663", "x", "9" * 5_000):
        bad = client.post("/job-actions/cancel", data={"at_most": wrong}, headers=FORM)
        assert bad.status_code == 422, wrong
    assert client.post("/job-actions/revive", headers=FORM).status_code == 422


def test_what_was_changed_meanwhile_is_refused_as_text(client: TestClient) -> None:
    """The page has the ETag of what it shows: 412; and what is so already is 409."""
    page = "/schedules/half?location=here"
    ((_, fields), *_) = Forms(client.get(page).text).forms.items()
    change = {"Content-Type": "application/merge-patch+json"}
    patched = client.patch(f"{API}{page}", json={"priority": 5}, headers=change)
    assert patched.status_code == 200
    late = client.post(
        "/schedules/half/suspend?location=here",
        data={**fields, "confirmed": "yes"},
        headers=FORM,
    )
    assert late.status_code == 412
    assert "it was changed since it was read" in Text(late.text).text
    twice = client.post("/schedules/half/enable?location=here", headers=FORM)
    assert twice.status_code == 409
    assert "enabled already" in Text(twice.text).text
    bad = client.post(
        "/consumers/totals/reset", data={"start": "<b>", "confirmed": "yes"}, headers=FORM
    )
    assert bad.status_code == 422
    assert "<b>" in Text(bad.text).text


def test_another_site_cannot_press_a_button(client: TestClient) -> None:
    """Nor a program that does not say where its form is from, nor one with another body."""
    path = "/schedules/half/suspend?location=here"
    form = {"Content-Type": FORM["Content-Type"], "Accept": HTML["Accept"]}
    for headers in (
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {},
    ):
        answer = client.post(path, data={"confirmed": "yes"}, headers={**form, **headers})
        assert answer.status_code == 403, headers
    for body, media_type, status in (
        ("{}", "application/json", 415),
        ("confirmed=yes", "text/plain", 415),
        ("confirmed=%00", FORM["Content-Type"], 400),
        ("confirmed=%ff", FORM["Content-Type"], 400),
        ("&".join(f"a{n}=1" for n in range(101)), FORM["Content-Type"], 400),
    ):
        sent = {"Content-Type": media_type, "Origin": "http://localhost:3001"}
        answer = client.post(path, content=body, headers=sent)
        assert answer.status_code == status, (body, media_type)
    status = client.get(f"{API}/schedules/half?location=here").json()["status"]
    assert status == "enabled"
    origin = {"Origin": "http://localhost:3001", "Content-Type": FORM["Content-Type"]}
    assert client.post(path, data={"confirmed": "yes"}, headers=origin).status_code == 200


def test_buttons_need_the_scope_and_name_the_user(
    database: Database, api: MakeApi, world: Callable[..., World]
) -> None:
    """Who may only read sees none, and is refused; the record has the user of the page."""
    world([schedule("a")])
    reader = browser(api(token=token(database, "*:read", name="reader")))
    page = "/schedules/a?location=here"
    assert Forms(reader.get(page).text).forms == {}
    assert Forms(reader.get("/jobs").text).forms == {}
    refused = reader.post("/schedules/a/suspend?location=here", headers=FORM)
    assert refused.status_code == 403
    ann = browser(api(token=token(database, "schedules:write@schedule=a", name="ann")))
    assert confirm(ann, press(ann, page, "suspend")).status_code == 200
    (record,) = [
        one for one in reader.get(f"{API}/audit").json()["records"] if one["action"] == "suspend"
    ]
    assert (record["actor"], record["before"]) == ("ann", {"status": "enabled"})
