"""Merges small manifests, so that planning a scan opens fewer files.

Writers that append add a manifest a commit. Iceberg's Java library merges a hundred of them by
default; pyiceberg and many streaming writers do not.

Source: ``BaseRewriteManifests`` of Iceberg's Java library, whose snapshot has the same operation
and the same numbers in its summary.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.table import Table

from arctic_orchestration.errors import InvalidInput, LakeError
from arctic_orchestration.lake.replacing.commit_loop import CommitLoop
from arctic_orchestration.lake.replacing.producer import Change, manifest_target
from arctic_orchestration.lake.replacing.table_head import Head, ReadManifests
from arctic_orchestration.lake.supported_formats import require_supported_format
from arctic_orchestration.lake.upkeep.removal import name_of, read_again

#: The smallest number of manifests that can be merged.
FEWEST = 2


@dataclass(frozen=True, kw_only=True)
class Rewritten:
    """The result, or the preview, of ``rewrite_manifests``."""

    #: the manifests in the table's head before
    before: int
    #: the small ones among them that were merged
    merged: int
    #: what they became; a preview does not know it
    written: int | None
    #: None: nothing was to be merged, or it was a preview
    snapshot_id: int | None


def rewrite_manifests(table: Table, *, fewest: int = FEWEST, dry_run: bool = False) -> Rewritten:
    """Merges manifests below half of ``commit.manifest.target-size-bytes``; refreshes ``table``.

    Those of data files and of delete files, and those of each partition spec, are merged among
    themselves. Files, rows and their ids stay as they are.

    Args:
        fewest: the number of small manifests of one kind below which they stay.
        dry_run: returns what would be merged, and changes nothing.

    Errors:
        InvalidInput: ``fewest`` is below two, or a property of the table cannot be read.
        UnsupportedTable: the table's format is newer than 3.
        CommitConflict: other writers were first for too long. Nothing was changed.
        CommitUnknown: the catalog neither confirmed nor refused the commit.
        CatalogUnavailable: the catalog did not answer, after several tries. Nothing was changed.
        LakeError: the table was dropped, or a manifest cannot be read. Nothing was changed.
    """
    if fewest < FEWEST:
        raise InvalidInput("fewest", fewest, f"at least {FEWEST}")
    run = _Rewrite(table, fewest)
    if dry_run:
        run.preview()
    else:
        run.commit()
    return run.result()


class _Rewrite(CommitLoop):
    _again = "Rewriting the manifests again is safe"

    def __init__(self, table: Table, fewest: int) -> None:
        super().__init__(table, ReadManifests(table.io, ()), None)
        self._fewest = fewest
        self._before = 0
        self._merged: frozenset[str] = frozenset()

    def preview(self) -> None:
        """Determines what a commit would merge."""
        read_again(self._table)
        require_supported_format(self._table.format_version, self._name)
        self._look(Head(self._table, self._read))

    def result(self) -> Rewritten:
        """Returns what was committed, or would be."""
        return Rewritten(
            before=self._before,
            merged=len(self._merged),
            written=None if self._manifests is None else len(self._manifests.manifests),
            snapshot_id=None if self._landed is None else self._landed.snapshot_id,
        )

    def _change(self, head: Head) -> tuple[Change, dict[str, str]] | None:
        self._look(head)
        return (Change(added=(), removed={}, merged=self._merged), {}) if self._merged else None

    def _look(self, head: Head) -> None:
        small = small_manifests(head.manifests, manifest_target(head.metadata) // 2, self._fewest)
        self._before = len(head.manifests)
        self._merged = frozenset(one.manifest_path for one in small)

    def _table_is_gone(self, reason: str) -> None:
        raise LakeError(f"{name_of(self._table)}: {reason}")


def small_manifests(
    manifests: Sequence[ManifestFile], below: int, fewest: int
) -> list[ManifestFile]:
    """Returns the manifests shorter than ``below`` bytes, of kinds with ``fewest`` of them."""

    def kind(manifest: ManifestFile) -> tuple[ManifestContent, int]:
        return manifest.content, manifest.partition_spec_id

    small = sorted((one for one in manifests if one.manifest_length < below), key=kind)
    kinds = [list(some) for _, some in groupby(small, kind)]
    return [one for some in kinds if len(some) >= fewest for one in some]
