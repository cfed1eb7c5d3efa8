"""A stand-in for Kubernetes: its API on loopback, and executors of Spark as processes.

It keeps what is posted, and answers and streams what Spark's scheduler asks for. Where a kubelet
starts a container, it starts what the entry point of Spark's image does. There are no nodes, no
rights and no limits.
"""

import asyncio
import contextlib
import copy
import os
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
from fastapi import Body, FastAPI, WebSocket, WebSocketDisconnect

from arctic_orchestration.lake.java import find_java
from arctic_orchestration_tests.service.served import listening

_LOOPBACK = "127.0.0.1"
_BACKEND = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
_NAMESPACE = "/api/v1/namespaces/default"
#: of a container's environment, by the parameter of the executor that has its value
_PARAMETERS = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}


class Kubernetes:
    """A namespace, with what it contains and the pods that it ever contained."""

    def __init__(self, directory: Path) -> None:
        self.master = ""
        #: the pods as they were posted, oldest first
        self.posted: list[dict[str, Any]] = []
        self._directory = directory
        self._changed = threading.RLock()
        self._objects: dict[tuple[str, str], dict[str, Any]] = {}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        #: all changes: the kind, what happened, and the object
        self._events: list[tuple[str, str, dict[str, Any]]] = []

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
                found["status"] = {"phase": "Running", "podIP": _LOOPBACK}
                self._processes[name] = self._started(found)
                threading.Thread(target=self._wait, args=(name,), daemon=True).start()
            self._objects[kind, name] = found
            self._note(kind, "ADDED", found)
        return found

    def delete(self, kind: str, labels: Mapping[str, str]) -> None:
        """Removes the objects with these labels, and ends the processes of pods."""
        with self._changed:
            for one in self.found(kind, labels):
                name = one["metadata"]["name"]
                del self._objects[kind, name]
                if kind == "pods":
                    self._processes[name].kill()
                self._note(kind, "DELETED", one)

    def found(self, kind: str, labels: Mapping[str, str]) -> list[dict[str, Any]]:
        """The objects of a kind with these labels."""
        with self._changed:
            found = [one for (of, _), one in self._objects.items() if of == kind]
            return copy.deepcopy([one for one in found if _has(one, labels)])

    def changes(
        self, kind: str, labels: Mapping[str, str], since: int
    ) -> tuple[int, list[dict[str, Any]]]:
        """The number of all changes, and those of a kind after the first ones."""
        with self._changed:
            return len(self._events), [
                {"type": event, "object": found}
                for of, event, found in self._events[since:]
                if of == kind and _has(found, labels)
            ]

    def close(self) -> None:
        """Ends all pods."""
        for process in self._processes.values():
            process.kill()
            process.wait()

    def _note(self, kind: str, event: str, found: dict[str, Any]) -> None:
        found["metadata"]["resourceVersion"] = str(len(self._events) + 1)
        self._events.append((kind, event, copy.deepcopy(found)))

    def _wait(self, name: str) -> None:
        code = self._processes[name].wait()
        with self._changed:
            found = self._objects.get(("pods", name))
            if found is not None:
                found["status"]["phase"] = "Failed" if code else "Succeeded"
                self._note("pods", "MODIFIED", found)

    def _started(self, pod: dict[str, Any]) -> "subprocess.Popen[bytes]":
        (container,) = pod["spec"]["containers"]
        assert container["args"] == ["executor"]
        name = pod["metadata"]["name"]
        fields = {"status.podIP": _LOOPBACK, "metadata.name": name}
        given = {
            one["name"]: one.get("value") or fields[one["valueFrom"]["fieldRef"]["fieldPath"]]
            for one in container["env"]
        }
        memory = given["SPARK_EXECUTOR_MEMORY"]
        command = [
            str(find_java().home / "bin" / "java"),
            *(value for key, value in given.items() if key.startswith("SPARK_JAVA_OPT_")),
            *(f"-Xms{memory}", f"-Xmx{memory}"),
            *("-cp", str(Path(pyspark.__file__).parent / "jars" / "*"), _BACKEND),
            *(word for key, value in _PARAMETERS.items() for word in (key, given[value])),
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
    """Of ``a=b,c!=d``, only ``a=b``: nothing here has a label that is excluded.

    Errors:
        AssertionError: the selector has another operator.
    """
    assert "(" not in selector, selector
    pairs = (one.partition("=") for one in selector.split(",") if one and "!=" not in one)
    return {name: value for name, _, value in pairs}


def _app(cluster: Kubernetes) -> FastAPI:
    app = FastAPI()

    @app.post(_NAMESPACE + "/{kind}", status_code=201)
    def post(kind: str, found: dict[str, Any] = Body()) -> dict[str, Any]:
        return cluster.post(kind, found)

    @app.get(_NAMESPACE + "/{kind}")
    def get(kind: str, labelSelector: str = "") -> dict[str, Any]:
        items = cluster.found(kind, _labels(labelSelector))
        return {"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items}

    @app.delete(_NAMESPACE + "/{kind}")
    def delete(kind: str, labelSelector: str = "") -> dict[str, Any]:
        cluster.delete(kind, _labels(labelSelector))
        return {"apiVersion": "v1", "kind": "Status", "status": "Success"}

    @app.websocket(_NAMESPACE + "/{kind}")
    async def watch(socket: WebSocket, kind: str, labelSelector: str = "") -> None:
        labels = _labels(labelSelector)
        seen, _ = cluster.changes(kind, labels, 0)
        await socket.accept()
        with contextlib.suppress(WebSocketDisconnect):
            while True:
                seen, changes = cluster.changes(kind, labels, seen)
                for change in changes:
                    await socket.send_json(change)
                await asyncio.sleep(0.05)

    return app


@contextmanager
def kubernetes(directory: Path) -> Iterator[Kubernetes]:
    """Starts one whose pods work in the directory; it ends with the block."""
    cluster = Kubernetes(directory)
    with listening(_app(cluster)) as url:
        cluster.master = f"k8s://{url}"
        try:
            yield cluster
        finally:
            cluster.close()
