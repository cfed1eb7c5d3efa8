"""Whether a position delete names a data file, when both paths are written differently.

Iceberg's readers compare the paths literally: rows that are deleted from ``/a`` stay in a file with
the path ``file:///a`` in the table. Other readers may compare them otherwise. So:

- A merge removes exactly the rows that readers omit. If a delete names one of its files in another
  form, so that a row might be lost or restored, it refuses
  (:func:`~arctic_orchestration.lake.merging.deletes.deleted_positions`).
- All other code treats such a delete as one of that file: it is planned with it, is a conflict when
  it comes later, and stays as long as the file does.
"""

import re
from dataclasses import dataclass

#: Scheme and authority. A scheme has at least two letters; one letter is a drive.
_FORM = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:(?://[^/]*(?=/))?")
_SLASHES = re.compile("/{2,}")


def form_of(path: str) -> str:
    """Returns scheme and authority of a path; empty for a plain one."""
    found = _FORM.match(path)
    return found[0] if found else ""


def file_key(path: str) -> str:
    """Returns a key that is equal for all forms of a path that may mean one file.

    It contains neither scheme nor authority, so files of two stores may share it. Nothing is
    decoded: in Iceberg, a ``%20`` is three characters of a name.
    """
    rest = path[len(form_of(path)) :]
    return _SLASHES.sub("/", rest) if "//" in rest else rest


@dataclass(frozen=True, slots=True)
class PathBounds:
    """The smallest and greatest of some paths, either possibly truncated or unknown."""

    lower: bytes | None
    upper: bytes | None
    #: the form of all of them; None: they may have several, and their order means nothing
    form: str | None

    @classmethod
    def of(cls, lower: bytes | None, upper: bytes | None) -> "PathBounds":
        forms = {
            form_of(bound.decode(errors="replace")) for bound in (lower, upper) if bound is not None
        }
        return cls(lower, upper, forms.pop() if len(forms) == 1 else None)

    def may_hold(self, path: str) -> bool:
        """Returns whether a file may be among the paths, in any form."""
        return self.may_hold_bytes(path.encode(), form_of(path))

    def may_hold_bytes(self, path: bytes, form: str) -> bool:
        """Returns the same for a path with a known form."""
        if form != self.form:
            return True
        return (self.lower is None or self.lower <= path) and (
            self.upper is None or path <= self.upper
        )
