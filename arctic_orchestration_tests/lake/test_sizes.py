"""How many outputs are wanted."""

import pytest

from arctic_orchestration.lake.file_sizes import outputs_wanted


@pytest.mark.parametrize(
    ("total", "files", "expected"),
    [
        (0, 2, 1),
        (1, 2, 1),
        (149, 2, 1),
        (150, 2, 2),
        (249, 2, 2),
        (250, 2, 3),
        (1000, 99, 10),
        (150, 1, 1),
        (180, 1, 1),
        (181, 1, 2),
        (250, 1, 3),
    ],
)
def test_outputs_come_nearest_to_a_target_of_100(total: int, files: int, expected: int) -> None:
    """From 75 to 149 each if they are several; a file alone stays one up to 180."""
    assert outputs_wanted(total, 100, files=files) == expected
