"""Text that no database compresses."""

from hashlib import sha256


def noise(length: int, seed: int = 0) -> str:
    """Hexadecimal digits, the same for the same arguments."""
    blocks = (sha256(b"%d %d" % (seed, n)).hexdigest() for n in range(length // 64 + 1))
    return "".join(blocks)[:length]
