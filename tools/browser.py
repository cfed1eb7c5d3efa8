"""Dagster's UI in headless Chromium, spoken to over the DevTools protocol.

Chromium is told to resolve no name, so nothing leaves this machine.
"""

import base64
import contextlib
import itertools
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

_PATIENCE_SECONDS = 120.0
_LOOK_EVERY_SECONDS = 0.2
_WIDTH = 1400


@dataclass(frozen=True, kw_only=True)
class Picture:
    """One page: where it is, and the JavaScript that is true when it shows what it is for."""

    file: str
    path: str
    height: int
    ready: str
    #: run again and again until the page is ready: a click that opens what is to be seen
    click: str = ""


#: The browser remembers it, and the pages after the first begin without.
_HIDE_NAVIGATION = """
    [...document.querySelectorAll('button, a')]
        .find(element => element.innerText.trim() === 'Hide navigation')?.click()
"""
#: where everything stands, to see that nothing moves any more
_PLACES = """
    [...document.querySelectorAll('a, svg, tr, button')].map(element => {
        const box = element.getBoundingClientRect();
        return [box.left, box.top].map(Math.round).join();
    }).join(' ')
"""


class Page:
    """A tab of Chromium, spoken to over the DevTools protocol."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._numbers = itertools.count(1)
        #: what Chromium has reported of itself
        self.events: list[dict[str, Any]] = []

    def before_each_page(self, script: str) -> None:
        """Runs a script in every page before the page's own."""
        self.call("Page.enable")
        self.call("Page.addScriptToEvaluateOnNewDocument", source=script)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Runs one command of the protocol and returns its result."""
        number = next(self._numbers)
        self._connection.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            answer = json.loads(self._connection.recv(timeout=_PATIENCE_SECONDS))
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return dict(answer["result"])
            if "method" in answer:
                self.events.append(answer)

    def evaluate(self, script: str) -> Any:
        """The value of a JavaScript expression in the page; None when it raised."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        return result["result"].get("value")

    def take(self, url: str, picture: Picture, into: Path) -> Path:
        """Opens the page, waits until it is ready and saves it; returns the file."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=_WIDTH,
            height=picture.height,
            deviceScaleFactor=1,
            mobile=False,
        )
        self.call("Page.navigate", url=url + picture.path)
        try:
            until(lambda: self._is_ready(picture), f"{picture.path} is rendered")
            self.evaluate(_HIDE_NAVIGATION)
            self._until_still()
        except TimeoutError:
            print(self.evaluate("document.body.innerText"), file=sys.stderr)
            raise
        data = base64.b64decode(self._shot())
        file = into / picture.file
        file.write_bytes(data)
        return file

    def _is_ready(self, picture: Picture) -> bool:
        if self.evaluate(picture.ready) is True:
            return True
        if picture.click:
            self.evaluate(picture.click)
        return False

    def _shot(self) -> str:
        return str(self.call("Page.captureScreenshot", format="png")["data"])

    def _until_still(self) -> None:
        """Waits until nothing has moved for some looks; a text that counts seconds may."""
        places: list[Any] = []

        def still() -> bool:
            places.append(self.evaluate(_PLACES))
            return len(places) >= 10 and all(place == places[-1] for place in places[-10:])

        until(still, "the page stands still")


def until(holds: Callable[[], bool], what: str) -> None:
    """Waits for a condition.

    Errors:
        TimeoutError: it did not come true in time.
    """
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {_PATIENCE_SECONDS:.0f} s until {what}")
        time.sleep(_LOOK_EVERY_SECONDS)


@contextlib.contextmanager
def webserver(home: Path) -> Iterator[str]:
    """Dagster's webserver on the instance in ``home``; yields its URL."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [
        str(Path(sys.executable).with_name("dagster-webserver")),
        *("-w", str(home / "workspace.yaml"), "-h", "127.0.0.1", "-p", str(port)),
    ]
    url = f"http://127.0.0.1:{port}"
    with running(command, env={**os.environ, "DAGSTER_HOME": str(home)}) as process:
        until(lambda: _answers(f"{url}/server_info", process), "the webserver answers")
        yield url


@contextlib.contextmanager
def page(chromium: str) -> Iterator[Page]:
    """A tab of a fresh headless Chromium."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [
            chromium,
            "--headless",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--hide-scrollbars",
            "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
            "--remote-debugging-port=0",
            f"--user-data-dir={profile}",
            "about:blank",
        ]
        if os.geteuid() == 0:
            # Chromium's sandbox refuses to be set up by root.
            command.insert(1, "--no-sandbox")
        port_file = Path(profile) / "DevToolsActivePort"
        with running(command) as process:
            until(lambda: _alive(process) and len(_words(port_file)) == 2, "Chromium listens")
            port = _words(port_file)[0]
            tabs = json.loads(_get(f"http://127.0.0.1:{port}/json/list"))
            target = next(tab for tab in tabs if tab["type"] == "page")
            with connect(target["webSocketDebuggerUrl"], proxy=None, max_size=None) as connection:
                yield Page(connection)


def _words(file: Path) -> list[str]:
    """The port and the path of Chromium's file, which is there before they are."""
    return file.read_text().split() if file.exists() else []


@contextlib.contextmanager
def running(
    command: Sequence[str], env: dict[str, str] | None = None
) -> Iterator["subprocess.Popen[bytes]"]:
    """A process that is ended with the block, and its output shown when it was not wanted."""
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            command, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
        )
        try:
            yield process
        except BaseException:
            log.seek(0)
            sys.stderr.buffer.write(log.read()[-4000:])
            raise
        finally:
            process.terminate()
            try:
                process.wait(timeout=15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _alive(process: "subprocess.Popen[bytes]") -> bool:
    if process.poll() is not None:
        raise RuntimeError(f"{process.args!r} ended with {process.returncode}")
    return True


def _answers(url: str, process: "subprocess.Popen[bytes]") -> bool:
    _alive(process)
    try:
        _get(url)
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False
    return True


def _get(url: str) -> bytes:
    # Loopback is reached directly, whatever proxy the environment names.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=5) as answer:
        return bytes(answer.read())
