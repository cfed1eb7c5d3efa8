"""Which paths are of the same file, and which are of two."""

import pytest

from arctic_orchestration.lake.upkeep.reachable import KnownFiles, keys_of, literal_key


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("/a b/c", "file:///a b/c"),
        ("/a b/c", "file:/a%20b/c"),
        ("/a b/c", "file:///a%20b/c"),
        ("/a//b/../b/c", "/a/b/c"),
        ("s3://bucket/a/b", "s3a://bucket/a/b"),
        ("s3://bucket/a b", "s3n://bucket/a%20b"),
        ("hdfs://host:8020/a/b", "hdfs:///a/b"),
        ("abfss://box@account.dfs.core.windows.net/a", "abfs://box@account.dfs.core.windows.net/a"),
    ],
)
def test_forms_of_one_file(one: str, other: str) -> None:
    assert keys_of(one) & keys_of(other)
    known = KnownFiles()
    known.add(other)
    assert one in known


def test_a_percent_sign_in_a_plain_path_is_a_percent_sign() -> None:
    """``/a%20b`` names no file ``/a b``; as a URL it may mean either, and both are known."""
    assert not keys_of("/a%20b") & keys_of("/a b")
    assert keys_of("file:///a%20b") == {literal_key("/a%20b"), literal_key("/a b")}


def test_different_files_are_different() -> None:
    known = KnownFiles()
    known.add("/a/b")
    assert "/a/c" not in known
    assert "/a/b/c" not in known
    assert "/b" not in known
    assert not known.has_key(literal_key("s3://a/b/c"))
