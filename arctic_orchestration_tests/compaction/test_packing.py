"""Files in bins of the target size."""

from hypothesis import given
from hypothesis import strategies as st

from arctic_orchestration.compaction.planning.packing import Limits, in_order, pack, too_large
from arctic_orchestration.lake.file_groups import LiveFile
from arctic_orchestration_tests.compaction.planned_files import data_file, delete_file

WIDE = Limits(target=100, most_bytes=400, most_files=1000)


def sizes(bins: list[tuple[LiveFile, ...]]) -> list[list[int]]:
    """The sizes of the files in each bin."""
    return [[file.size for file in bin_] for bin_ in bins]


def written(*sizes: int) -> list[LiveFile]:
    """One file after the other."""
    return [data_file(f"f{place}", size, sequence=place) for place, size in enumerate(sizes)]


def test_each_file_goes_into_the_first_bin_with_room() -> None:
    """60 opens a bin, 50 the next; 40 fills the first, 30 goes to the second, 30 to a third."""
    assert sizes(pack(written(60, 50, 40, 30, 30), WIDE)) == [[60, 40], [50, 30], [30]]


def test_files_stay_in_the_order_in_which_the_table_got_them() -> None:
    """By sequence number, then by path, whatever order they are given in."""
    files = [
        data_file("b", 1, sequence=2),
        data_file("a", 2, sequence=2),
        data_file("z", 3, sequence=1),
    ]
    assert [file.path for file in pack(files, WIDE)[0]] == ["z", "a", "b"]
    assert pack(files[::-1], WIDE) == pack(files, WIDE)


def test_a_file_above_the_target_has_a_bin_of_its_own() -> None:
    """Nothing is added to it, however little."""
    assert sizes(pack(written(1, 150, 1, 0), WIDE)) == [[1, 1, 0], [150]]


def test_a_bin_has_so_many_files_at_most() -> None:
    """Then the next one is opened."""
    limits = Limits(target=100, most_bytes=400, most_files=2)
    assert sizes(pack(written(1, 2, 3, 0, 0), limits)) == [[1, 2], [3, 0], [0]]


def test_delete_files_count_once_a_bin() -> None:
    """20 of deletes leave room for 80 of data, though two files have the same deletes."""
    shared = delete_file("d", 20)
    files = [data_file(f"f{place}", 40, sequence=place, deletes=[shared]) for place in range(3)]
    assert sizes(pack(files, WIDE)) == [[40, 40], [40]]
    own = [data_file(f"f{n}", 40, sequence=n, deletes=[delete_file(f"d{n}", 20)]) for n in range(3)]
    assert sizes(pack(own, WIDE)) == [[40], [40], [40]]


def test_large_deletes_have_as_much_data_beside_them() -> None:
    """With 95 of deletes, a bin takes 95 of data: 5 would mean to read them for each file."""
    shared = delete_file("d", 95)
    files = [data_file(f"f{place}", 5, sequence=place, deletes=[shared]) for place in range(20)]
    assert [len(bin_) for bin_ in pack(files, WIDE)] == [19, 1]


def test_bins_that_deletes_fill_do_not_keep_others_apart() -> None:
    """100 bins of 40 + 40 and 20 of deletes are full; 200 files of 1 go into bins of 80."""
    shared = (delete_file("d", 20),)
    files = [data_file(f"a{n:03}", 40, deletes=shared) for n in range(200)]
    files += [data_file(f"b{n:03}", 1, sequence=2, deletes=shared) for n in range(200)]
    counts = [len(bin_) for bin_ in pack(files, WIDE)]
    assert counts == [2] * 100 + [80, 80, 40]


def test_a_file_finds_the_bin_with_room_for_its_deletes_too() -> None:
    """Behind 20 bins in which 30 of deletes are too many: 10 and 30 go to the one of 50."""
    files = [data_file(f"a{n:02}", 61) for n in range(20)] + [data_file("b", 50)]
    files.append(data_file("c", 10, sequence=2, deletes=[delete_file("d", 30)]))
    assert [file.path for file in pack(files, WIDE)[-1]] == ["b", "c"]


def test_a_file_that_no_task_may_read_is_left_out() -> None:
    """Because of its size, or of that of its deletes; the others are packed."""
    limits = Limits(target=100, most_bytes=120, most_files=10)
    files = [
        data_file("large", 121),
        data_file("deleted", 60, deletes=[delete_file("d", 61)]),
        data_file("fits", 60, deletes=[delete_file("e", 60)]),
        data_file("small", 40),
    ]
    large = too_large(in_order(files), limits.most_bytes)
    assert [file.path for file in large] == ["deleted", "large"]
    bins = pack([file for file in files if file not in large], limits)
    assert [[file.path for file in bin_] for bin_ in bins] == [["fits"], ["small"]]


DELETES = [delete_file(f"d{place}", size) for place, size in enumerate((0, 1, 10, 30, 70, 120))]
FILES = st.lists(
    st.tuples(
        st.integers(0, 150),
        st.integers(0, 5),
        st.lists(st.sampled_from(DELETES), max_size=3, unique=True),
    ),
    max_size=40,
).map(
    lambda found: [
        data_file(f"f{place}", size, sequence=sequence, deletes=deletes)
        for place, (size, sequence, deletes) in enumerate(found)
    ]
)
LIMITS = st.builds(
    Limits,
    target=st.just(100),
    most_bytes=st.integers(100, 300),
    most_files=st.integers(2, 50),
)


@given(FILES, LIMITS)
def test_bins_keep_within_the_limits(files: list[LiveFile], limits: Limits) -> None:
    """Every file is in one bin or too large; a bin of several files is never above its limits."""
    large = too_large(files, limits.most_bytes)
    bins = pack([file for file in files if file not in large], limits)
    packed = [file.path for bin_ in bins for file in bin_]
    assert sorted([*packed, *(file.path for file in large)]) == sorted(file.path for file in files)
    for bin_ in bins:
        data = sum(file.size for file in bin_)
        deletes = sum({d.path: d.size for file in bin_ for d in file.deletes}.values())
        assert data + deletes <= limits.most_bytes
        assert len(bin_) <= limits.most_files
        assert list(bin_) == sorted(bin_, key=lambda file: (file.sequence_number, file.path))
        if len(bin_) > 1:
            assert data <= limits.target
            assert data + deletes <= limits.target or data <= deletes


@given(st.lists(st.integers(0, 150), max_size=60))
def test_the_tree_finds_what_looking_at_every_bin_finds(found: list[int]) -> None:
    """First fit, written down the plain way; and so no two bins fit into one."""
    expected: list[list[int]] = []
    for size in found:
        room = (bin_ for bin_ in expected if sum(bin_) + size <= 100)
        place = next(room, None)
        if place is None:
            expected.append([size])
        else:
            place.append(size)
    assert sizes(pack(written(*found), WIDE)) == expected
    sums = [sum(bin_) for bin_ in expected]
    assert all(a + b > 100 for n, a in enumerate(sums) for b in sums[n + 1 :])
