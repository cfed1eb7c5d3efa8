"""Fields of manifests and their entries for which pyiceberg's classes have no properties.

pyiceberg describes them for format 3 only. Entries of all formats are read in this one layout:
writers may set ``referenced_data_file`` in format 2, too.
"""

from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    MANIFEST_ENTRY_SCHEMAS,
    MANIFEST_LIST_FILE_SCHEMAS,
    DataFile,
    FileFormat,
    ManifestContent,
    ManifestFile,
)

#: The id that the specification reserves for the paths in a file of position deletes.
DELETED_PATH = 2147483546
#: Identifies an entry: a Puffin file contains several deletion vectors, each at its offset.
EntryKey = tuple[str, int]

ENTRY = MANIFEST_ENTRY_SCHEMAS[3]
MANIFEST = MANIFEST_LIST_FILE_SCHEMAS[3]
_FIELDS = {field.name: place for place, field in enumerate(DATA_FILE_TYPE[3].fields)}
_FIRST_ROW_ID = _FIELDS["first_row_id"]
_REFERENCED = _FIELDS["referenced_data_file"]
_OFFSET = _FIELDS["content_offset"]
_SIZE = _FIELDS["content_size_in_bytes"]
_MANIFEST_FIRST_ROW_ID = [field.name for field in MANIFEST.fields].index("first_row_id")


def complete(file: DataFile) -> DataFile:
    """Adds the fields, without values, to a file that pyiceberg described; returns it."""
    file._data.extend([None] * (len(_FIELDS) - len(file._data)))
    return file


def first_row_id_of(file: DataFile) -> int | None:
    """Returns the row id of the first row of a data file; None: its rows have none yet."""
    found: int | None = file[_FIRST_ROW_ID]
    return found


def set_first_row_id(file: DataFile, row_id: int | None) -> None:
    """Sets what :func:`first_row_id_of` returns."""
    file[_FIRST_ROW_ID] = row_id


def referenced_of(file: DataFile) -> str | None:
    """Returns the one data file of the deletes, if ``referenced_data_file`` names it."""
    found: str | None = file[_REFERENCED]
    return found


def path_bounds_of(file: DataFile) -> tuple[bytes | None, bytes | None]:
    """Returns the smallest and greatest path of data files in a file of position deletes.

    They may be truncated in an order-preserving way.
    """
    lower, upper = file.lower_bounds or {}, file.upper_bounds or {}
    return lower.get(DELETED_PATH), upper.get(DELETED_PATH)


def only_target_of(file: DataFile) -> str | None:
    """Returns the one data file of the deletes, if their manifest says that there is one."""
    if referenced := referenced_of(file):
        return referenced
    lower, upper = path_bounds_of(file)
    return lower.decode() if lower is not None and lower == upper else None


def is_vector(file: DataFile) -> bool:
    """Returns whether a delete file is a deletion vector, in a part of a Puffin file."""
    return file.file_format == FileFormat.PUFFIN


def content_of(file: DataFile) -> tuple[int, int] | None:
    """Returns the offset and the size of a deletion vector in its Puffin file."""
    offset: int | None = file[_OFFSET]
    size: int | None = file[_SIZE]
    return None if offset is None or size is None else (offset, size)


def key_of(file: DataFile) -> EntryKey:
    """Returns the key of a file's entry; of a deletion vector, with its offset."""
    return file.file_path, file[_OFFSET] or 0


def manifest_first_row_id(manifest: ManifestFile) -> int | None:
    """Returns the row id from which files without one are counted; None: they have none."""
    if manifest.content != ManifestContent.DATA or len(manifest._data) <= _MANIFEST_FIRST_ROW_ID:
        return None
    found: int | None = manifest[_MANIFEST_FIRST_ROW_ID]
    return found


def own_copy(manifest: ManifestFile, *, first_row_id: int | None = None) -> ManifestFile:
    """Returns a copy with all fields; ``copy.copy`` would share their values.

    Args:
        first_row_id: None: the manifest's own.
    """
    copied = ManifestFile(*manifest._data)
    copied._data.extend([None] * (_MANIFEST_FIRST_ROW_ID + 1 - len(copied._data)))
    if first_row_id is not None:
        copied[_MANIFEST_FIRST_ROW_ID] = first_row_id
    return copied
