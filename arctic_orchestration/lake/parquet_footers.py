"""Adds field ids to the footer of a Parquet file where Spark omits them.

Spark writes the ids of columns and struct fields, but cannot store those of list elements and of
map keys and values. Without them a reader treats the whole file as one without ids.

The footer is a Thrift struct in the compact protocol, followed by its length and ``PAR1``. Its
second field is the schema, a list of elements in depth-first order. Only the missing ``field_id``
(field 9 of an element) is inserted; all other bytes stay, and the offsets in the footer stay valid
because all data lies before it.

Source: the Thrift compact protocol specification and parquet-format's ``parquet.thrift``.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pyiceberg.types as iceberg
from pyiceberg.schema import Schema

from arctic_orchestration.errors import LakeError

MAGIC = b"PAR1"
#: Length of the footer and the magic, at the end of a file.
TAIL_BYTES = 8

_BINARY, _LIST, _SET, _MAP, _STRUCT, _I32 = 8, 9, 10, 11, 12, 5
_SCHEMA_FIELD = 2
_NAME, _CHILDREN, _FIELD_ID = 4, 5, 9


@dataclass(frozen=True, kw_only=True)
class _Element:
    """One element of the schema, and where its ``field_id`` belongs."""

    name: str
    children: int
    field_id: int | None
    #: The offset of the field, and the numbers of the fields before and after it.
    insert_at: int
    before: int
    after: int


def with_ids(footer: bytes, schema: Schema) -> bytes:
    """Returns the footer with the id of every field; the same bytes if none is missing.

    Args:
        footer: the Thrift struct, without length and magic.

    Errors:
        LakeError: the footer lacks a field of the schema, or has another id for one.
    """
    ids = dict(_ids(schema.as_struct(), ()))
    edited = bytearray()
    done = 0
    for path, element in _paths(list(_Compact(footer).schema())):
        field_id = ids.pop(path, None)
        if field_id is None or element.field_id == field_id:
            continue
        if element.field_id is not None:
            raise LakeError(f"the Parquet footer gives {path} the id {element.field_id}")
        edited += footer[done : element.insert_at]
        edited += _i32_field(_FIELD_ID - element.before, field_id)
        done = element.insert_at
        if element.after:
            # A field's header contains the difference to the number of the field before it.
            edited.append((element.after - _FIELD_ID) << 4 | (footer[done] & 0x0F))
            done += 1
    if ids:
        raise LakeError(f"the Parquet footer has no fields {sorted(ids)}")
    return bytes(edited + footer[done:])


def _ids(kind: iceberg.IcebergType, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], int]]:
    below: list[tuple[tuple[str, ...], int, iceberg.IcebergType]] = []
    match kind:
        case iceberg.StructType():
            below = [
                ((*path, field.name), field.field_id, field.field_type) for field in kind.fields
            ]
        case iceberg.ListType():
            below = [((*path, "list", "element"), kind.element_id, kind.element_type)]
        case iceberg.MapType():
            below = [
                ((*path, "key_value", "key"), kind.key_id, kind.key_type),
                ((*path, "key_value", "value"), kind.value_id, kind.value_type),
            ]
    for here, field_id, inside in below:
        yield here, field_id
        yield from _ids(inside, here)


def _paths(elements: list[_Element]) -> Iterator[tuple[tuple[str, ...], _Element]]:
    """Yields each element with the names that lead to it; the root has none."""
    position = 0

    def below(path: tuple[str, ...], count: int) -> Iterator[tuple[tuple[str, ...], _Element]]:
        nonlocal position
        for _ in range(count):
            element = elements[position]
            position += 1
            here = (*path, element.name)
            yield here, element
            yield from below(here, element.children)

    root = elements[0]
    position = 1
    yield from below((), root.children)


def _i32_field(delta: int, value: int) -> bytes:
    out = bytearray([delta << 4 | _I32])
    left = value << 1 if value >= 0 else ((-value) << 1) - 1
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)


class _Compact:
    """A parser of the compact protocol that keeps only the schema."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def schema(self) -> Iterator[_Element]:
        for number, kind in self._fields():
            if number != _SCHEMA_FIELD:
                self._skip(kind)
                continue
            if kind != _LIST:
                break
            size, element_kind = self._list_header()
            if element_kind != _STRUCT:
                break
            for _ in range(size):
                yield self._element()
            return
        raise LakeError("the Parquet footer has no schema")

    def _element(self) -> _Element:
        values: dict[int, object] = {}
        insert_at, before, after = -1, 0, 0
        last = 0
        while True:
            start = self._at
            header = self._byte()
            if header == 0:
                number = 0
            else:
                delta = header >> 4
                number = last + delta if delta else self._zigzag()
            if insert_at < 0 and (number == 0 or number >= _FIELD_ID):
                insert_at, before, after = start, last, number
            if number == 0:
                break
            last = number
            values[number] = self._value(header & 0x0F)
        name = values.get(_NAME, b"")
        children = values.get(_CHILDREN, 0)
        field_id = values.get(_FIELD_ID)
        if (
            not isinstance(name, bytes)
            or not isinstance(children, int)
            or not isinstance(field_id, int | None)
        ):
            raise LakeError("the Parquet footer's schema is broken")
        return _Element(
            name=name.decode(),
            children=children,
            field_id=field_id,
            insert_at=insert_at,
            before=before,
            after=after,
        )

    def _fields(self) -> Iterator[tuple[int, int]]:
        last = 0
        while header := self._byte():
            delta = header >> 4
            last = last + delta if delta else self._zigzag()
            yield last, header & 0x0F

    def _value(self, kind: int) -> object:
        if kind == _BINARY:
            size = self._varint()
            self._at += size
            return self._data[self._at - size : self._at]
        if kind == _I32:
            return self._zigzag()
        self._skip(kind)
        return None

    def _skip(self, kind: int) -> None:
        if kind in (1, 2):
            return
        if kind == 3:
            self._at += 1
        elif kind in (4, 5, 6):
            self._varint()
        elif kind == 7:
            self._at += 8
        elif kind == _BINARY:
            size = self._varint()
            self._at += size
        elif kind in (_LIST, _SET):
            size, element_kind = self._list_header()
            for _ in range(size):
                self._skip_element(element_kind)
        elif kind == _MAP:
            size = self._varint()
            kinds = self._byte() if size else 0
            for _ in range(size):
                self._skip_element(kinds >> 4)
                self._skip_element(kinds & 0x0F)
        elif kind == _STRUCT:
            for _, field_kind in self._fields():
                self._skip(field_kind)
        else:
            raise LakeError(f"the Parquet footer holds the unknown Thrift type {kind}")

    def _skip_element(self, kind: int) -> None:
        if kind in (1, 2):
            # Inside a collection, a boolean takes a byte; as a field, it is in the header.
            self._at += 1
        else:
            self._skip(kind)

    def _list_header(self) -> tuple[int, int]:
        header = self._byte()
        size = header >> 4
        return (self._varint() if size == 15 else size), header & 0x0F

    def _byte(self) -> int:
        value = self._data[self._at]
        self._at += 1
        return value

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def _zigzag(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)
