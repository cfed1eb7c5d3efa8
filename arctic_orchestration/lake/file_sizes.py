"""How many files a merge writes for a number of bytes; shared by planning and merging."""


def outputs_wanted(total_bytes: int, target_bytes: int, *, files: int) -> int:
    """Returns the number of equal outputs whose size is nearest to the target; at least one.

    If there are several, an output is between three quarters of the target and one and a half of
    it, so that none is merged again for its size alone. A single file stays one up to 1.8 of the
    target, where files count as too large: two outputs without its deleted rows might be too small.

    Args:
        total_bytes: the size of the merged data files.
        target_bytes: the target size of one output; above zero.
        files: the number of merged files.
    """
    if files == 1 and 5 * total_bytes <= 9 * target_bytes:
        return 1
    return max(1, (2 * total_bytes + target_bytes) // (2 * target_bytes))
