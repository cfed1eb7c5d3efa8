"""A stand-in for Kubernetes: its API on loopback, and executors of Spark as processes.

It keeps what is posted, and answers and streams what Spark's scheduler asks for. Where a kubelet
starts a container, it starts what the entry point of Spark's image does. There are no nodes, no
rights and no limits.
"""

import contextlib
import copy
import json
import os
import queue
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pyspark

from arctic_orchestration.lake.java import find_java

_POD_IP = "127.0.0.1"
_KINDS = {"pods": "Pod", "configmaps": "ConfigMap"}
_BACKEND = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"


class Kubernetes:
    """A namespace, with what it contains and what it ever contained."""

    def __init__(self, directory: Path) -> None:
        self.port = 0
        #: the pods as they were posted, oldest first
        self.posted: list[dict[str, Any]] = []
        self._directory = directory
        self._changed = threading.RLock()
        self._version = 0
        self._objects: dict[tuple[str, str], dict[str, Any]] = {}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._watchers: list[tuple[str, Mapping[str, str], queue.Queue[dict[str, Any]]]] = []

    @property
    def master(self) -> str:
        """The value of ``spark.master``."""
        return f"k8s://http://127.0.0.1:{self.port}"

    def names(self) -> list[str]:
        """What is there now: ``pods/a``."""
        with self._changed:
            return [f"{kind}/{name}" for kind, name in sorted(self._objects)]

    def post(self, kind: str, found: dict[str, Any]) -> dict[str, Any]:
        """Adds an object; a pod begins."""
        name = found["metadata"]["name"]
        with self._changed:
            if kind == "pods":
                self.posted.append(copy.deepcopy(found))
                found["status"] = {"phase": "Running", "podIP": _POD_IP, "containerStatuses": []}
                self._processes[name] = self._started(found)
                threading.Thread(target=self._wait, args=(name,), daemon=True).start()
            self._objects[kind, name] = found
            self._notify(kind, found, "ADDED")
        return found

    def delete(self, kind: str, name: str) -> dict[str, Any] | None:
        """Removes an object, and ends the process of a pod; None: there is none."""
        with self._changed:
            found = self._objects.pop((kind, name), None)
            if found is not None:
                self._notify(kind, found, "DELETED")
                if kind == "pods":
                    self._processes[name].kill()
            return found

    def found(self, kind: str, labels: Mapping[str, str]) -> dict[str, Any]:
        """The list of the objects of a kind with these labels."""
        with self._changed:
            items = [
                one for (of, _), one in self._objects.items() if of == kind and _has(one, labels)
            ]
            version = {"resourceVersion": str(self._version)}
            return {
                "apiVersion": "v1",
                "kind": f"{_KINDS.get(kind, kind)}List",
                "metadata": version,
                "items": copy.deepcopy(items),
            }

    @contextmanager
    def watched(
        self, kind: str, labels: Mapping[str, str]
    ) -> Iterator[queue.Queue[dict[str, Any]]]:
        """The changes from now on."""
        events: queue.Queue[dict[str, Any]] = queue.Queue()
        one = (kind, labels, events)
        with self._changed:
            self._watchers.append(one)
        try:
            yield events
        finally:
            with self._changed:
                self._watchers.remove(one)

    def close(self) -> None:
        """Ends all pods."""
        with self._changed:
            for process in self._processes.values():
                process.kill()
        for process in self._processes.values():
            process.wait()

    def _notify(self, kind: str, found: dict[str, Any], event: str) -> None:
        self._version += 1
        found["metadata"]["resourceVersion"] = str(self._version)
        for of, labels, events in self._watchers:
            if of == kind and _has(found, labels):
                events.put({"type": event, "object": copy.deepcopy(found)})

    def _wait(self, name: str) -> None:
        code = self._processes[name].wait()
        with self._changed:
            found = self._objects.get(("pods", name))
            if found is not None:
                found["status"]["phase"] = "Failed" if code else "Succeeded"
                self._notify("pods", found, "MODIFIED")

    def _started(self, pod: dict[str, Any]) -> "subprocess.Popen[bytes]":
        (container,) = pod["spec"]["containers"]
        assert container["args"] == ["executor"]
        name = pod["metadata"]["name"]
        fields = {"status.podIP": _POD_IP, "metadata.name": name}
        given = {
            one["name"]: one["value"]
            if "value" in one
            else fields[one["valueFrom"]["fieldRef"]["fieldPath"]]
            for one in container["env"]
        }
        options = [value for key, value in given.items() if key.startswith("SPARK_JAVA_OPT_")]
        java = str(find_java().home / "bin" / "java")
        classpath = str(Path(pyspark.__file__).parent / "jars" / "*")
        memory = given["SPARK_EXECUTOR_MEMORY"]
        command = [
            *(java, *options, f"-Xms{memory}", f"-Xmx{memory}", "-cp", classpath, _BACKEND),
            *("--driver-url", given["SPARK_DRIVER_URL"]),
            *("--executor-id", given["SPARK_EXECUTOR_ID"]),
            *("--cores", given["SPARK_EXECUTOR_CORES"]),
            *("--app-id", given["SPARK_APPLICATION_ID"]),
            *("--hostname", given["SPARK_EXECUTOR_POD_IP"]),
            *("--resourceProfileId", given["SPARK_RESOURCE_PROFILE_ID"]),
            *("--podName", given["SPARK_EXECUTOR_POD_NAME"]),
        ]
        work = self._directory / name
        work.mkdir()
        with (work / "log").open("w") as log:
            environment = {**os.environ, **given, "SPARK_LOCAL_DIRS": str(work)}
            return subprocess.Popen(
                command, env=environment, cwd=work, stdout=log, stderr=subprocess.STDOUT
            )


def _has(found: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    return bool(labels.items() <= found["metadata"].get("labels", {}).items())


def _labels(selector: str) -> dict[str, str]:
    """Of ``a=b,c=d``; what is asked with other operators is not looked at."""
    pairs = (one.partition("=") for one in selector.split(",") if "!" not in one)
    return {name.strip(): value.lstrip("=") for name, equals, value in pairs if equals}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    kubernetes: Kubernetes

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        kind, _, query = self._asked()
        labels = _labels(query.get("labelSelector", ""))
        if query.get("watch") == "true" and "Upgrade" in self.headers:
            # No web socket: Spark's client then watches by a response that does not end.
            self._answer({})
        elif query.get("watch") == "true":
            self._stream(kind, labels)
        else:
            self._answer(self.kubernetes.found(kind, labels))

    def do_POST(self) -> None:
        kind, _, _ = self._asked()
        self._answer(self.kubernetes.post(kind, json.loads(self._body())), 201)

    def do_DELETE(self) -> None:
        kind, name, query = self._asked()
        self._body()
        if name:
            self._answer(self.kubernetes.delete(kind, name))
            return
        found = self.kubernetes.found(kind, _labels(query.get("labelSelector", "")))
        for one in found["items"]:
            self.kubernetes.delete(kind, one["metadata"]["name"])
        self._answer({"kind": "Status", "apiVersion": "v1", "status": "Success"})

    def _asked(self) -> tuple[str, str, dict[str, str]]:
        """Of ``/api/v1/namespaces/default/pods/a?b=c``: what is in the places of pods, a and b."""
        found = urlsplit(self.path)
        _, _, rest = found.path.partition("/namespaces/")
        kind, _, name = rest.partition("/")[2].partition("/")
        return kind, name, {key: value for key, (value, *_) in parse_qs(found.query).items()}

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _answer(self, found: Mapping[str, Any] | None, code: int = 200) -> None:
        if found is None:
            found, code = {"kind": "Status", "apiVersion": "v1", "reason": "NotFound"}, 404
        body = json.dumps(found).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, kind: str, labels: Mapping[str, str]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.close_connection = True
        with contextlib.suppress(OSError), self.kubernetes.watched(kind, labels) as events:
            while True:
                line = json.dumps(events.get()).encode() + b"\n"
                self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))


@contextmanager
def kubernetes(directory: Path) -> Iterator[Kubernetes]:
    """Starts one whose pods work in the directory; it ends with the block."""
    found = Kubernetes(directory)
    handler = type("Handler", (_Handler,), {"kubernetes": found})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    found.port = server.server_address[1]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()
        found.close()
