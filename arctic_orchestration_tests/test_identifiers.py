"""Identifiers: unique without a database, sorted as they were made."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

from arctic_orchestration.identifiers import new_id

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_it_has_26_unambiguous_characters() -> None:
    """Crockford's base 32, in which i, l, o and u do not occur."""
    assert all(len(new_id(NOW)) == 26 for _ in range(100))
    assert set("".join(new_id(NOW) for _ in range(1000))) <= set("0123456789abcdefghjkmnpqrstvwxyz")


def test_it_begins_with_the_moment() -> None:
    """2026-01-01 is 1,767,225,600 s after 1970; Python reads base 32 with letters up to v."""
    crockford = "0123456789abcdefghjkmnpqrstvwxyz"
    python = "0123456789abcdefghijklmnopqrstuv"
    text = new_id(NOW)[:10].translate(str.maketrans(crockford, python))
    assert int(text, 32) == 1_767_225_600_000


def test_what_is_made_later_sorts_later() -> None:
    """Between milliseconds, and within one."""
    made = [new_id(NOW + timedelta(milliseconds=n // 100)) for n in range(1000)]
    assert made == sorted(made)


def test_threads_make_no_identifier_twice() -> None:
    """Ten thousand within one millisecond."""
    with ThreadPoolExecutor(8) as threads:
        made = list(threads.map(lambda _: new_id(NOW), range(10_000)))
    assert len(set(made)) == 10_000
