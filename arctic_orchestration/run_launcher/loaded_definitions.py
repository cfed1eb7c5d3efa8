"""Keeps forked runs from loading again what their run host has loaded."""

from collections.abc import Mapping
from typing import Any

from dagster import RepositoryDefinition

from arctic_orchestration.dagster_internals import CodePointer, RepositoryLoadData, reconstruct


def remember(definitions: Mapping[CodePointer, RepositoryDefinition]) -> None:
    """Makes Dagster use these definitions instead of loading them again by their pointers.

    Runs with their own data for loading definitions (state-backed components, reconstruction
    metadata) still load them with it.
    """
    original = reconstruct.reconstruct_repository_def_from_pointer
    kept = list(definitions.items())

    def remembered(
        pointer: CodePointer, repository_load_data: RepositoryLoadData | None = None
    ) -> RepositoryDefinition:
        if not _is_usable(repository_load_data):
            for known, definition in kept:
                if known == pointer:
                    return definition
        return original(pointer, repository_load_data)

    reconstruct.reconstruct_repository_def_from_pointer = remembered


def _is_usable(data: Any) -> bool:
    return data is not None and bool(
        data.cacheable_asset_data or data.reconstruction_metadata or data.defs_state_info
    )
