"""How many files a merge makes of so many bytes; planned and done by one rule."""


def outputs_wanted(total_bytes: int, target_bytes: int, *, files: int) -> int:
    """How many outputs of equal size come nearest to the target; at least one.

    An output of several is between three quarters of the target and one and a half of it, so that
    none is merged again for its size alone. A file alone stays one up to 1.8 of the target, where
    files are taken for too large: two that are written without its deleted rows might be too small.

    Args:
        total_bytes: of the data files that are merged.
        target_bytes: of one output; above zero.
        files: how many are merged.
    """
    if files == 1 and 5 * total_bytes <= 9 * target_bytes:
        return 1
    return max(1, (2 * total_bytes + target_bytes) // (2 * target_bytes))
