"""A run that takes all that is new, however much that is."""

from collections.abc import Sequence

from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.consumers.arrivals import Log, engine_of


def test_a_block_is_bounded_by_the_working_set_and_a_loop_has_all(
    state: Database, log: Log
) -> None:
    """Readings of 3 end when 5 wait or more: with 6. The rest is in the blocks that follow."""
    keys = [f"{number:02}" for number in range(20)]
    log.arrives(*keys)
    consumer = engine_of(state, log, working_set=5)
    consumer.events_at_once = 3
    blocks: list[Sequence[str]] = []
    while not blocks or blocks[-1]:
        with consumer.consume() as partitions:
            blocks.append(partitions.keys)
    assert [len(block) for block in blocks] == [6, 6, 6, 2, 0]
    assert [key for block in blocks for key in block] == keys
