"""The code that a run host has loaded, and whether it has changed since.

New code must never run in a process with old modules. The stock launcher imports everything again
for each run. A run host imports once, so it records every file that was opened and every folder
that was listed while its location's code was loaded: modules, and also the SQL, YAML and JSON that
definitions are made of.
"""

import importlib.util
import os
import sys
from collections.abc import Hashable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
#: Kernel and device files change constantly, and define nothing.
_OUTSIDE = ("/proc/", "/sys/", "/dev/")
#: Of a folder, only these names count: databases, logs and folders of runs change.
_CODE = (".py", ".so", ".pth", ".sql", ".yaml", ".yml", ".json", ".toml", ".env", ".j2")


class LoadedCode:
    """The files and folders that were read while code was loaded."""

    def __init__(self) -> None:
        self._files: dict[str, Hashable] = {}
        self._folders: dict[str, tuple[int, Hashable]] = {}
        self._recording = False
        sys.addaudithook(self._note)

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Records files that are read in the block, and modules that were imported before it."""
        self._recording = True
        try:
            yield
        finally:
            self._recording = False
        for module in list(sys.modules.values()):
            file = getattr(module, "__file__", None)
            if isinstance(file, str):
                self._files.setdefault(os.path.abspath(file), _state(file))
        # Imports list a folder once, maybe before this: a file added later may be imported.
        for folder in [os.path.abspath(one) for one in sys.path_importer_cache]:
            if os.path.isdir(folder) and folder not in self._folders:
                self._folders[folder] = _modified(folder), _names(folder)

    def changed(self) -> str | None:
        """Returns the first file or folder that has changed since it was read, or nothing."""
        for path, state in self._files.items():
            if _state(path) != state:
                return path
        for path, (modified, names) in self._folders.items():
            now = _modified(path)
            if now != modified:
                if _names(path) != names:
                    return path
                self._folders[path] = now, names
        return None

    def _note(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self._recording or event not in ("open", "os.listdir", "os.scandir"):
            return
        path = os.fsdecode(arguments[0]) if isinstance(arguments[0], bytes) else arguments[0]
        if not isinstance(path, (str, Path)):
            return
        full = os.path.abspath(path)
        if full.startswith(_OUTSIDE) or full in self._files or full in self._folders:
            return
        if event == "open":
            if (arguments[2] or 0) & _WRITING:
                return
            if full.endswith(".pyc"):
                # A compiled module stands for its source at this moment, not at the end of loading.
                with suppress(ValueError):
                    full = importlib.util.source_from_cache(full)
            self._files.setdefault(full, _state(full))
        else:
            # Listing the folder calls this hook again, which finds it here.
            self._folders[full] = 0, None
            self._folders[full] = _modified(full), _names(full)


def _state(path: str) -> Hashable:
    with suppress(OSError):
        found = os.stat(path)
        return found.st_mtime_ns, found.st_size, found.st_ino
    return None


def _modified(path: str) -> int:
    with suppress(OSError):
        return os.stat(path).st_mtime_ns
    return 0


def _names(path: str) -> Hashable:
    with suppress(OSError):
        return tuple(sorted(name for name in os.listdir(path) if name.endswith(_CODE)))
    return None
