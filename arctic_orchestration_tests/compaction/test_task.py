"""What a task may become, and when two tasks are the same."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arctic_orchestration.compaction.queue.task import (
    ENDED,
    LIVE,
    TRANSITIONS,
    WAITING,
    TaskKind,
    TaskState,
    check_move,
    digest_of,
)
from arctic_orchestration.errors import TransitionRefused
from arctic_orchestration_tests.compaction.stored import planned

#: the arrows of the drawing in the module's text, written down once more
ARROWS = """
planned claimed
planned superseded
planned canceled
claimed merged
claimed failed
claimed planned
claimed quarantined
failed planned
failed superseded
failed canceled
merged committed
merged superseded
merged quarantined
merged canceled
"""


def test_a_task_moves_along_the_arrows_of_the_drawing_and_no_others() -> None:
    """Of all 64 pairs of states; what is refused names the task and both states."""
    allowed = {tuple(line.split()) for line in ARROWS.split("\n") if line}
    assert len(allowed) == 14
    for state, to in itertools.product(TaskState, TaskState):
        if (state.value, to.value) in allowed:
            check_move("a1", state, to)
            continue
        with pytest.raises(TransitionRefused) as refused:
            check_move("a1", state, to)
        assert str(refused.value) == f"Compaction task a1 is {state} and cannot become {to}"


def test_every_state_is_live_or_ended_and_what_ended_goes_nowhere() -> None:
    """Waiting ones are live; from every live state an end can be reached."""
    assert {*LIVE, *ENDED} == set(TaskState)
    assert not set(LIVE) & set(ENDED)
    assert set(WAITING) <= set(LIVE)
    assert all(not TRANSITIONS[state] for state in ENDED)
    assert all(TRANSITIONS[state] for state in LIVE)


@given(paths=st.lists(st.text(min_size=1), min_size=1, unique=True), data=st.data())
def test_the_digest_is_of_the_set_of_paths(paths: list[str], data: st.DataObject) -> None:
    """In any order; one more or one fewer makes another."""
    shuffled = data.draw(st.permutations(paths))
    assert digest_of(shuffled) == digest_of(paths)
    other = data.draw(st.text(min_size=1).filter(lambda path: path not in paths))
    assert digest_of([*paths, other]) != digest_of(paths)
    assert digest_of(paths[1:]) != digest_of(paths)


def test_deletes_and_kinds_do_not_change_the_digest() -> None:
    """The same data files are the same work, with whatever deletes apply by now."""
    plain = planned("a", "b")
    assert planned("b", "a", deletes=["d"], kind=TaskKind.MAJOR).digest == plain.digest
    assert plain.paths == ("a", "b")
