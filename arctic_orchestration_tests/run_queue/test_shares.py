"""Slots go to queues in proportion to their shares."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arctic_orchestration.run_queue.shares import Claim, divide


def claim(share: float, in_use: int, wanted: int, level: int = 0) -> Claim:
    return Claim(share=share, level=level, in_use=in_use, wanted=wanted)


@pytest.mark.parametrize(
    ("slots", "claims", "expected"),
    [
        # Of ten slots, one part to four.
        (10, {"low": claim(1, 0, 99), "high": claim(4, 0, 99)}, {"low": 2, "high": 8}),
        # What high does not use is lent.
        (10, {"low": claim(1, 0, 99), "high": claim(4, 0, 3)}, {"low": 7, "high": 3}),
        # All ten were lent, one has ended: it is high's.
        (1, {"low": claim(1, 9, 99), "high": claim(1, 0, 1)}, {"low": 0, "high": 1}),
        # Low has more than its share already; high takes all until it has its own.
        (3, {"low": claim(1, 7, 99), "high": claim(1, 0, 99)}, {"low": 0, "high": 3}),
        # Equally little: the higher level first.
        (1, {"a": claim(1, 0, 9), "b": claim(1, 0, 9, level=1)}, {"a": 0, "b": 1}),
        (0, {"a": claim(1, 0, 9)}, {"a": 0}),
        (5, {"a": claim(1, 0, 0)}, {"a": 0}),
        (5, {}, {}),
    ],
)
def test_a_computed_example(slots: int, claims: dict[str, Claim], expected: dict[str, int]) -> None:
    assert divide(slots, claims) == expected


CLAIMS = st.dictionaries(
    st.sampled_from("abcdef"),
    st.builds(
        claim,
        st.sampled_from([0.5, 1, 2, 3, 10]),
        st.integers(0, 12),
        st.integers(0, 12),
        st.integers(-1, 1),
    ),
)


@given(slots=st.integers(0, 30), claims=CLAIMS)
def test_nothing_usable_is_left(slots: int, claims: dict[str, Claim]) -> None:
    given_ = divide(slots, claims)
    assert all(given_[name] <= claims[name].wanted for name in claims)
    assert sum(given_.values()) == min(slots, sum(claim.wanted for claim in claims.values()))


@given(slots=st.integers(0, 30), claims=CLAIMS)
def test_no_slot_would_be_fairer_elsewhere(slots: int, claims: dict[str, Claim]) -> None:
    """Max-min: who goes short has no more, with one more slot, than each who was given one."""
    given_ = divide(slots, claims)
    for short, one in claims.items():
        if given_[short] == one.wanted:
            continue
        with_one_more = Fraction(one.in_use + given_[short] + 1) / Fraction(one.share)
        for other, two in claims.items():
            if given_[other]:
                has = Fraction(two.in_use + given_[other]) / Fraction(two.share)
                assert has <= with_one_more
