"""Checks the pages of a running ``arctic serve`` in headless Chromium.

Takes a picture of each page at three widths, light and dark, and fails if a page is wider than the
screen, reports an error on the console, or if axe-core finds something serious:
``python tools/check_pages.py http://127.0.0.1:3001 --axe node_modules/axe-core/axe.min.js``.
"""

import argparse
import base64
import json
import re
import shutil
import sys
import urllib.request
from pathlib import Path

from browser import Page, page, until

WIDTHS = (375, 768, 1440)
_FIRST = (
    "/waiting?group_by=cause", "/waiting?limit=50", "/schedules", "/jobs", "/queues", "/runs",
    "/resources", "/tasks", "/task-graph", "/skip-list", "/consumers",
    "/compaction/tables", "/compaction/queues", "/compaction/tasks?state=all", "/events",
    "/workers", "/audit", "/nowhere",
)  # fmt: skip
_SERIOUS = """
    axe.run().then(found => found.violations
        .filter(one => ['serious', 'critical'].includes(one.impact))
        .map(one => one.id + ': ' + one.nodes.map(node => node.target).join(' | ')))
"""


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", help="where the pages are")
    parser.add_argument("--axe", type=Path, help="axe.min.js of the npm package axe-core")
    parser.add_argument("--into", type=Path, default=Path("page-pictures"))
    given = parser.parse_args()
    chromium = shutil.which("chromium") or parser.error("Chromium is not installed")
    given.into.mkdir(parents=True, exist_ok=True)
    troubles: list[str] = []
    with page(chromium) as tab:
        for domain in ("Page", "Runtime", "Log", "Network"):
            tab.call(f"{domain}.enable")
        for number, path in enumerate(_paths(given.url)):
            troubles += _checked(
                tab, given.url, path, given.into / f"{number:02}{_name(path)}", given.axe
            )
    print("\n".join(troubles) or "no trouble", file=sys.stderr)
    sys.exit(bool(troubles))


def _paths(url: str) -> list[str]:
    """Returns the paths of lists, and one that each links to of each kind."""
    found = dict.fromkeys(_FIRST)
    kinds: set[str] = set()
    for path in _FIRST[:-1]:
        request = urllib.request.Request(url + path, headers={"Accept": "text/html"})
        text = urllib.request.urlopen(request).read().decode()
        for link in re.findall(r'href="(/(?:[a-z]+/){1,2}[^"/]+)"', text):
            kind = link.rpartition("/")[0]
            if kind not in (*kinds, "/compaction", "/vendor", "/api/v1") and link not in found:
                kinds.add(kind)
                found[link.replace("&amp;", "&")] = None
    return list(found)


def _checked(tab: Page, url: str, path: str, file: Path, axe: Path | None) -> list[str]:
    troubles = []
    for scheme in ("light", "dark"):
        tab.call(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": scheme}],
        )
        for width in WIDTHS:
            tab.call("Emulation.setDeviceMetricsOverride", width=width, height=1000,
                     deviceScaleFactor=1, mobile=False)  # fmt: skip
            tab.events.clear()
            tab.call("Page.navigate", url=url + path)
            until(lambda: tab.evaluate("document.readyState") == "complete", path)
            wider = tab.evaluate("document.documentElement.scrollWidth - innerWidth")
            if wider > 0:
                troubles.append(f"{path} at {width}: {wider} px too wide")
            picture = tab.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
            file.with_name(f"{file.name}-{width}-{scheme}.png").write_bytes(
                base64.b64decode(picture["data"])
            )
            troubles += [
                f"{path} at {width}: {text}" for text in _errors(tab) if path != "/nowhere"
            ]
        if axe is not None:
            tab.call("Runtime.evaluate", expression=axe.read_text())
            found = tab.call(
                "Runtime.evaluate", expression=_SERIOUS, awaitPromise=True, returnByValue=True
            )
            troubles += [
                f"{path} {scheme}: {text}"
                for text in found["result"].get("value")
                or ["axe failed"] * ("value" not in found["result"])
            ]
    return troubles


def _errors(tab: Page) -> list[str]:
    of = {"Log.entryAdded": "entry", "Runtime.exceptionThrown": "exceptionDetails"}
    return [
        json.dumps(event["params"][of[event["method"]]])[:500]
        for event in tab.events
        if event["method"] in of
        and event["params"].get("entry", {}).get("level") in (None, "error")
    ]


def _name(path: str) -> str:
    return re.sub(r"[^a-z]+", "-", path)[:40]


if __name__ == "__main__":
    main()
