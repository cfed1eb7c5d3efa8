"""File systems that tell where they are used, or fail there; workers import them by this name."""

import os
import threading
from pathlib import Path
from typing import Any

from pyiceberg.io import OutputFile
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO


class PidFileIO(PyArrowFileIO):
    """Leaves a file with the process id beside each output."""

    def new_output(self, location: str) -> PyArrowFile:
        made = super().new_output(location)
        path = Path(self.properties["pid_file"])
        path.write_text(str(os.getpid()))
        return made


class LockedFileIO(PyArrowFileIO):
    """Cannot be sent to another process."""

    def __init__(self, properties: Any = None) -> None:
        super().__init__(properties or {})
        self.lock = threading.Lock()


class BrokenFileIO(PyArrowFileIO):
    """Has an error of its own."""

    def new_input(self, location: str) -> PyArrowFile:
        raise AttributeError("none of that name")


class _FullStream:
    """Takes so many bytes and no more."""

    closed = False

    def __init__(self, path: str, room: int) -> None:
        self._file = Path(path).open("wb")  # noqa: SIM115
        self._room = room

    def write(self, data: Any) -> int:
        taken = self._file.write(memoryview(data)[: max(0, self._room)])
        self._room -= len(data)
        if self._room < 0:
            raise OSError(28, "No space left on device")
        return taken

    def flush(self) -> None:
        self._file.flush()

    def tell(self) -> int:
        return self._file.tell()

    def close(self) -> None:
        self.closed = True
        self._file.close()


class _FullFile(OutputFile):
    def __init__(self, location: str, room: int) -> None:
        super().__init__(location)
        self._room = room

    def __len__(self) -> int:
        return Path(self.location).stat().st_size

    def exists(self) -> bool:
        return Path(self.location).exists()

    def to_input_file(self) -> Any:
        return PyArrowFileIO().new_input(self.location)

    def create(self, overwrite: bool = False) -> Any:
        Path(self.location).parent.mkdir(parents=True, exist_ok=True)
        return _FullStream(self.location, self._room)


class FullFileIO(PyArrowFileIO):
    """A disk with ``room`` bytes for a file; one that ``keeps`` does not delete."""

    def new_output(self, location: str) -> Any:
        return _FullFile(location, int(self.properties["room"]))

    def delete(self, location: Any) -> None:
        if self.properties.get("keeps"):
            raise OSError("not today")
        super().delete(location)
