"""Reports of merges from workers over HTTP, which are input like any other.

Whether the outputs are Parquet files with these rows and the table's columns is verified by the
committer, from the files themselves.
"""

import re

from arctic_orchestration.compaction.work.attempt import Attempt, MergedFile
from arctic_orchestration.errors import InvalidDefinition, InvalidInput, Refused
from arctic_orchestration.lake.file_groups import DeleteKind, FileGroup
from arctic_orchestration.service.worker_documents import MergedForm

#: one component of a path: nothing that a file system or a URL reads as more than a name
_COMPONENT = re.compile(r"(?!\.{1,2}$)[^/\\%?#]+")


def _is_below(rest: str) -> bool:
    return rest.isprintable() and all(map(_COMPONENT.fullmatch, rest.split("/")))


def checked_outputs(form: MergedForm, attempt: Attempt, group: FileGroup) -> list[MergedFile]:
    """Returns the outputs of a report.

    Errors:
        InvalidDefinition: outputs outside of the attempt's directory, or given twice; rows that do
            not add up, or that no delete can have deleted. Names all of them.
        Refused: the attempt has no directory yet.
    """
    if attempt.location is None:
        raise Refused(f"attempt {attempt.id} has no directory yet: claim again, with the same key")
    below = f"{attempt.location.rstrip('/')}/"
    problems, paths = [], set()
    for number, output in enumerate(form.outputs):
        name = f"outputs[{number}].path"
        rest = output.path.removeprefix(below)
        if rest == output.path or not _is_below(rest):
            problems.append(InvalidInput(name, output.path, f"a file below {below}"))
        elif output.path in paths:
            problems.append(InvalidInput(name, output.path, "each file once"))
        paths.add(output.path)
    if form.rows_in != group.rows:
        problems.append(InvalidInput("rows_in", form.rows_in, f"the {group.rows} of the files"))
    most = _most_deleted(group)
    if form.rows_deleted > most:
        expected = f"at most {most}, by the delete files"
        problems.append(InvalidInput("rows_deleted", form.rows_deleted, expected))
    rows = sum(output.rows for output in form.outputs)
    if rows != form.rows_in - form.rows_deleted:
        expected = f"{form.rows_in} - {form.rows_deleted} rows in all outputs"
        problems.append(InvalidInput("outputs", rows, expected))
    if problems:
        raise InvalidDefinition(problems)
    return [MergedFile(path=one.path, size=one.size, rows=one.rows) for one in form.outputs]


def _most_deleted(group: FileGroup) -> int:
    """Returns how many rows can be deleted; an equality delete may match all rows of its files."""
    by_value = {
        file.path
        for file in group.files
        if any(one.kind is DeleteKind.EQUALITY for one in file.deletes)
    }
    others = [file for file in group.files if file.path not in by_value]
    positions = {one.key: one.rows for file in others for one in file.deletes}
    most = sum(min(file.rows, sum(one.rows for one in file.deletes)) for file in others)
    # A delete file may be for several data files.
    most = min(most, sum(positions.values()))
    return most + sum(file.rows for file in group.files if file.path in by_value)
