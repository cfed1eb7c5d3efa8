"""Whether two paths may mean one data file, and where it need not be looked for."""

import pytest
from pyiceberg.catalog import Catalog

from arctic_orchestration.lake.manifests import live_files
from arctic_orchestration.lake.replacing.path_matching import PathBounds, file_key, form_of
from arctic_orchestration_tests.lake.delete_writer import Scope, add_position_deletes
from arctic_orchestration_tests.lake.reference_merge import BY_ORIGIN, add, new_table


@pytest.mark.parametrize(
    ("path", "form", "key"),
    [
        ("/a b/c%20d", "", "/a b/c%20d"),
        ("file:/a/b", "file:", "/a/b"),
        ("file:///a/b", "file://", "/a/b"),
        ("file://localhost/a/b", "file://localhost", "/a/b"),
        ("s3://bucket/a/b", "s3://bucket", "/a/b"),
        ("s3a://bucket/a//b", "s3a://bucket", "/a/b"),
        ("hdfs://host:8020/a", "hdfs://host:8020", "/a"),
        ("C:/a", "", "C:/a"),
        ("a:b/c", "", "a:b/c"),
    ],
)
def test_form_and_key_of_a_path(path: str, form: str, key: str) -> None:
    """Scheme and authority are the form; nothing is decoded."""
    assert (form_of(path), file_key(path)) == (form, key)


@pytest.mark.parametrize(
    ("lower", "upper", "path", "may"),
    [
        (b"/a/1", b"/a/3", "/a/2", True),
        (b"/a/1", b"/a/3", "/a/4", False),
        (b"/a/1", b"/a/3", "/a/0", False),
        (b"/a/1", None, "/a/0", False),
        (b"/a/1", None, "/a/2", True),
        (None, b"/a/3", "/a/4", False),
        (None, None, "/a/4", True),
        # Their order says nothing of another form, nor when there are several.
        (b"/a/1", b"/a/3", "file:///a/2", True),
        (b"s3://b/1", b"s3://b/3", "s3a://b/2", True),
        (b"s3://b/1", b"s3a://b/3", "s3://b/0", True),
        (b"s3://b/1", b"s3://b/3", "s3://b/4", False),
        # Cut off before the form ends, and in the middle of a letter.
        (b"s3://buck", b"s3://bucl", "s3://bucket/z", True),
        ("/ä".encode()[:2], "/ö".encode(), "/z", False),
    ],
)
def test_bounds_rule_files_out_by_paths_of_one_form_only(
    lower: bytes | None, upper: bytes | None, path: str, may: bool
) -> None:
    assert PathBounds.of(lower, upper).may_hold(path) is may


@pytest.mark.parametrize("scope", list(Scope))
def test_a_file_is_planned_with_deletes_that_name_it_in_another_form(
    catalog: Catalog, scope: Scope
) -> None:
    """The merge is to see them, and to refuse. The other partition has nothing to do with it."""
    table = new_table(catalog, spec=BY_ORIGIN)
    one, other = add(table, (1, "JFK")), add(table, (2, "LGA"))
    (delete,) = add_position_deletes(table, {one: [0]}, scope=scope, form="file://".__add__)
    found = {file.path: [each.path for each in file.deletes] for file in live_files(table).files}
    assert found == {one: [delete.path], other: []}
