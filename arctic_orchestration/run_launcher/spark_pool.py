"""The JVMs that a run host keeps for its runs, each lent to one run at a time.

A keeper process holds each JVM. A requesting run gets a free one with the same Spark properties;
without one, another is started, if necessary in place of one with other properties; if all are
lent, the run starts a JVM of its own. A run that dies, or kills its JVM, takes it with it.
"""

import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.context import ForkContext, ForkProcess
from selectors import EVENT_READ, BaseSelector
from typing import Any

from arctic_orchestration.run_launcher import messages

#: The time limit for clearing a returned JVM, which takes about a second.
_RETURN_SECONDS = 30.0


@dataclass(eq=False)
class _Jvm:
    properties: dict[str, str]
    process: ForkProcess
    keeper: socket.socket
    offer: dict[str, Any] | None = None
    #: the run that has it, or that waits for it to start
    run_id: str | None = None
    waiting: socket.socket | None = None
    free_since: float = field(default_factory=time.monotonic)
    loans: int = 0


class SparkPool:
    """The JVMs of one run host."""

    def __init__(
        self,
        rules: Mapping[str, Any],
        context: ForkContext,
        selector: BaseSelector,
        in_child: Callable[[], None],
    ) -> None:
        self._limit: int = rules["sessions"]
        self._idle: float = rules["idle_seconds"]
        self._context = context
        self._selector = selector
        self._in_child = in_child
        self._jvms: list[_Jvm] = []

    def lend(self, connection: socket.socket, run_id: str, properties: dict[str, str]) -> None:
        """Answers a run's request for a JVM; the answer may come later."""
        free = [jvm for jvm in self._jvms if jvm.run_id is None]
        fitting = [jvm for jvm in free if jvm.properties == properties]
        ready = [jvm for jvm in fitting if jvm.offer is not None]
        if not fitting and len(self._jvms) >= self._limit and free:
            self._end(min(free, key=lambda jvm: jvm.free_since))
        if not fitting and len(self._jvms) < self._limit:
            fitting = [self._start(properties)]
        if not fitting:
            self._answer(connection, {"ok": False, "why": f"all {self._limit} JVMs are lent"})
            return
        jvm = (ready or fitting)[0]
        jvm.run_id, jvm.waiting = run_id, connection
        self._hand_over(jvm)

    def released(self, run_id: str, clean: bool) -> None:
        """Takes back the JVM of an ended run."""
        for jvm in [jvm for jvm in self._jvms if jvm.run_id == run_id]:
            if jvm.waiting is not None:
                jvm.waiting.close()
                jvm.waiting, jvm.run_id = None, None
            elif clean:
                jvm.run_id, jvm.offer, jvm.free_since = None, None, time.monotonic()
                try:
                    jvm.keeper.sendall(b"\n")
                except OSError:
                    self._end(jvm)
            else:
                self._end(jvm)

    def let_go(self) -> None:
        """In a child: closes the connections of waiting runs."""
        for jvm in self._jvms:
            if jvm.waiting is not None:
                jvm.waiting.close()

    def look(self) -> None:
        """Ends JVMs that were free for too long, and those that do not come back from a loan."""
        for jvm in list(self._jvms):
            age = time.monotonic() - jvm.free_since
            stuck = jvm.loans > 0 and jvm.offer is None and age > _RETURN_SECONDS
            if stuck or (jvm.run_id is None and age > self._idle):
                self._end(jvm)

    def close(self) -> None:
        """Ends all of them."""
        for jvm in list(self._jvms):
            self._end(jvm)

    def status(self) -> list[dict[str, Any]]:
        """Returns each JVM: its keeper's process, its run, and how often it was lent."""
        return [
            {
                "pid": jvm.process.pid,
                "run": jvm.run_id,
                "ready": jvm.offer is not None,
                "loans": jvm.loans,
            }
            for jvm in self._jvms
        ]

    def _start(self, properties: dict[str, str]) -> _Jvm:
        ours, theirs = socket.socketpair()
        process = self._context.Process(
            target=self._keep, args=(ours, theirs, properties), name="keeper of a JVM"
        )
        process.start()
        theirs.close()
        jvm = _Jvm(properties, process, ours)
        self._jvms.append(jvm)
        self._selector.register(ours, EVENT_READ, lambda: self._heard(jvm))
        return jvm

    def _keep(self, ours: socket.socket, theirs: socket.socket, properties: dict[str, str]) -> None:
        self._in_child()
        ours.close()
        from arctic_orchestration.lake.lent_jvm import run_keeper

        run_keeper(theirs, properties)

    def _heard(self, jvm: _Jvm) -> None:
        if jvm not in self._jvms:
            # Another event of this moment has ended it.
            return
        try:
            jvm.offer = messages.receive(jvm.keeper)
        except (OSError, ValueError):
            self._end(jvm)
            return
        self._hand_over(jvm)

    def _hand_over(self, jvm: _Jvm) -> None:
        if jvm.offer is None or jvm.waiting is None:
            return
        connection, jvm.waiting = jvm.waiting, None
        jvm.loans += 1
        self._answer(connection, {"ok": True, **jvm.offer})

    def _end(self, jvm: _Jvm) -> None:
        self._jvms.remove(jvm)
        self._selector.unregister(jvm.keeper)
        jvm.keeper.close()
        if jvm.waiting is not None:
            self._answer(jvm.waiting, {"ok": False, "why": "its JVM has ended"})
        # Killed, to end any activity of its last run with it.
        jvm.process.kill()
        jvm.process.join()
        jvm.process.close()

    def _answer(self, connection: socket.socket, answer: dict[str, Any]) -> None:
        with suppress(OSError), connection:
            messages.send(connection, answer)
