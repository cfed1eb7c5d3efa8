"""Tags of runs: what is not refused can be stored."""

import json

import pytest
import sqlalchemy as sa

from arctic_orchestration.errors import InvalidInput
from arctic_orchestration.run_tags import check_storable
from arctic_orchestration_tests.noise import noise

_RESOURCES = {"resources": {"limits": {"cpu": "2", "memory": "4Gi"}}}
#: texts that an index of Postgres holds, because they are short or compress well
GOOD = [
    noise(2_500),
    json.dumps({"env": [{"name": f"VAR_{n}", "value": "on", **_RESOURCES} for n in range(60)]}),
    "ä" * 8_000,
]
#: texts around the limit, some of which it refuses
OTHERS = [
    *(noise(length) for length in range(2_500, 7_000, 250)),
    *(noise(1_500) + "x" * length for length in range(0, 40_000, 4_000)),
    *(noise(length) * 2 for length in range(1_300, 3_000, 200)),
    *(noise(length) + "x" * (2_800 - length) for length in range(1_500, 2_600, 100)),
    # Postgres compresses nothing that has no match in its first kilobyte.
    *("".join(map(chr, range(0x4E00, 0x4E00 + 500))) + "x" * n for n in range(500, 5_000, 500)),
    *(", ".join(f"s_{noise(24, n)}" for n in range(many)) for many in range(80, 240, 10)),
]


def _is_accepted(value: str) -> bool:
    try:
        check_storable({"note": value})
    except InvalidInput:
        return False
    return True


def test_a_tag_that_is_not_refused_fits_into_the_index(database_url: str) -> None:
    """On Postgres, the index over keys and values is like that of Dagster's table."""
    engine = sa.create_engine(database_url)
    table = sa.Table(
        "tags", sa.MetaData(), sa.Column("key", sa.Text), sa.Column("value", sa.Text),
        sa.Index("of_tags", "key", "value"),
    )  # fmt: skip
    table.create(engine)
    accepted = [value for value in [*GOOD, *OTHERS] if _is_accepted(value)]
    assert accepted[: len(GOOD)] == GOOD
    with engine.begin() as tx:
        tx.execute(sa.insert(table), [{"key": "note", "value": value} for value in accepted])
    refused = [value for value in OTHERS if value not in accepted]
    assert len(refused) > len(OTHERS) // 3
    if engine.name == "postgresql":
        with pytest.raises(sa.exc.OperationalError, match="index row"), engine.begin() as tx:
            tx.execute(sa.insert(table), {"key": "note", "value": refused[-1]})
    engine.dispose()


def test_a_refusal_names_the_tag_and_its_size() -> None:
    """Without all of its value; other tags are not looked at."""
    value = noise(6_000)
    with pytest.raises(InvalidInput) as refusal:
        check_storable({"fine": "x", "note": value, "more": value})
    assert str(refusal.value) == (
        f"tag note: got '6,004 bytes: {value[:100]}...', expected a tag of at most 2,600 bytes, "
        "or one that compresses to less"
    )
