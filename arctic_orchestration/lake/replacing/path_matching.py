"""Whether a position delete names a data file, when both are written in different ways.

Iceberg's readers compare the paths letter by letter: rows that are deleted from ``/a`` stay in a
file that the table has as ``file:///a``. Others might not compare that way. So:

- A merge takes away what readers take away, and nothing else. Where a delete names one of its
  files in another form, so that a row might be lost or come back, it refuses
  (:func:`~arctic_orchestration.lake.merging.deletes.deleted_positions`).
- Everybody else takes such a delete for one of that file: it is planned with it, is a conflict when
  it comes later, and stays as long as the file does.
"""

import re
from dataclasses import dataclass

#: Scheme and authority. A scheme has two letters at least; one letter is a drive.
_FORM = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:(?://[^/]*(?=/))?")
_SLASHES = re.compile("/{2,}")


def form_of(path: str) -> str:
    """Scheme and authority of a path; a plain one has none."""
    found = _FORM.match(path)
    return found[0] if found else ""


def file_key(path: str) -> str:
    """The same for all forms of a path that may mean one file.

    Neither scheme nor authority are in it, so that files of two stores may have the same. Nothing
    is decoded: in Iceberg a ``%20`` is three letters of a name.
    """
    rest = path[len(form_of(path)) :]
    return _SLASHES.sub("/", rest) if "//" in rest else rest


@dataclass(frozen=True, slots=True)
class PathBounds:
    """The smallest and greatest of some paths, either perhaps cut off or not known."""

    lower: bytes | None
    upper: bytes | None
    #: the form of all of them; None: they may have several, and their order says nothing
    form: str | None

    @classmethod
    def of(cls, lower: bytes | None, upper: bytes | None) -> "PathBounds":
        forms = {
            form_of(bound.decode(errors="replace")) for bound in (lower, upper) if bound is not None
        }
        return cls(lower, upper, forms.pop() if len(forms) == 1 else None)

    def may_hold(self, path: str) -> bool:
        """Whether a file may be among the paths, in whatever form."""
        return self.may_hold_bytes(path.encode(), form_of(path))

    def may_hold_bytes(self, path: bytes, form: str) -> bool:
        """The same of a path whose form is known."""
        if form != self.form:
            return True
        return (self.lower is None or self.lower <= path) and (
            self.upper is None or path <= self.upper
        )
