"""Which JVM of its host a run gets; the test answers in place of the processes that hold them."""

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from multiprocessing.context import ForkContext, ForkProcess
from selectors import DefaultSelector
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock, create_autospec

import pytest

from arctic_orchestration.run_launcher import messages, spark_pool
from arctic_orchestration.run_launcher.spark_pool import SparkPool

#: of each answer, which is there at once
SECONDS = 60


class Keepers:
    """A pool, and the keepers that it starts: the first one offers the port 1, and so on."""

    def __init__(self, sockets: ExitStack, sessions: int) -> None:
        self._sockets = sockets
        self._selector = DefaultSelector()
        self._ends: list[socket.socket] = []
        self.processes: list[Mock] = []
        self.properties: list[dict[str, str]] = []
        context = create_autospec(ForkContext, instance=True)
        context.Process = self._made
        rules = {"sessions": sessions, "idle_seconds": 600.0}
        self.pool = SparkPool(rules, context, self._selector, lambda: None)

    def _made(self, *, args: Any, **_: Any) -> Mock:
        _, theirs, properties = args
        self._ends.append(self._sockets.enter_context(theirs.dup()))
        self.properties.append(properties)
        process: Mock = create_autospec(ForkProcess, instance=True)
        process.pid = len(self._ends)
        self.processes.append(process)
        return process

    def lend(self, run: str, **properties: str) -> Callable[[], int | str]:
        """Requests a JVM for a run; returns what reads the port that it gets, or why none."""
        ours, theirs = socket.socketpair()
        self._sockets.enter_context(ours).settimeout(SECONDS)
        self.pool.lend(theirs, run, properties)

        def answer() -> int | str:
            found = messages.receive(ours)
            return int(found["port"]) if found["ok"] else str(found["why"])

        return answer

    def offer(self, number: int) -> None:
        """A keeper's JVM can be lent, for the first time or again."""
        messages.send(self._ends[number - 1], {"port": number})
        for key, _ in self._selector.select(SECONDS):
            key.data()

    def give_back(self, run: str, number: int) -> None:
        """A run ends, and the keeper has cleared what it left."""
        self.pool.released(run, clean=True)
        end = self._ends[number - 1]
        end.settimeout(SECONDS)
        assert end.recv(1) == b"\n"
        self.offer(number)

    def lent_to(self) -> dict[int | None, str | None]:
        """The run of each JVM, by the process of its keeper."""
        return {one["pid"]: one["run"] for one in self.pool.status()}


@pytest.fixture
def keepers() -> Iterator[Callable[[int], Keepers]]:
    with ExitStack() as stack:
        yield lambda sessions: Keepers(stack, sessions)


def test_a_run_gets_only_a_jvm_that_was_started_with_its_properties(
    keepers: Callable[[int], Keepers],
) -> None:
    """And where all that the host may have are lent, none."""
    two = keepers(2)
    first = two.lend("a", memory="1g")
    two.offer(1)
    assert first() == 1
    two.give_back("a", 1)
    second = two.lend("b", memory="4g")
    two.offer(2)
    assert second() == 2
    assert two.properties == [{"memory": "1g"}, {"memory": "4g"}]
    assert two.lend("c", memory="1g")() == 1
    assert two.lend("d", memory="1g")() == "all 2 JVMs are lent"
    assert two.lent_to() == {1: "c", 2: "b"}


def test_a_free_jvm_makes_room_for_one_with_other_properties(
    keepers: Callable[[int], Keepers],
) -> None:
    """There are never more than the host may have."""
    one = keepers(1)
    one.lend("a", memory="1g")
    one.offer(1)
    one.give_back("a", 1)
    other = one.lend("b", memory="4g")
    one.offer(2)
    assert other() == 2
    one.processes[0].kill.assert_called_once()
    assert one.lent_to() == {2: "b"}


def test_a_jvm_without_a_run_for_its_time_ends_and_a_lent_one_does_not(
    keepers: Callable[[int], Keepers], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten minutes after it was given back; that of a run that did not end well, at once."""
    now = 0.0
    monkeypatch.setattr(spark_pool, "time", SimpleNamespace(monotonic=lambda: now))
    three = keepers(3)
    for run in ("a", "b", "c"):
        three.lend(run)
    for number in (1, 2, 3):
        three.offer(number)
    three.pool.released("c", clean=False)
    assert three.lent_to() == {1: "a", 2: "b"}
    three.give_back("a", 1)
    three.lend("d")
    three.give_back("b", 2)
    now = 600.0
    three.pool.look()
    assert three.lent_to() == {1: "d", 2: None}
    now = 601.0
    three.pool.look()
    assert three.lent_to() == {1: "d"}
