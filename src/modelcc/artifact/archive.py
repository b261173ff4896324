"""Deterministic zip archives: stored members, each at an aligned offset.

Names and contents of the members determine every byte of an archive: all bytes around the contents
are compared with those that would be written, and the contents with their CRC-32.  So any changed
byte is detected, nothing is ever decompressed, and sizes are checked against the file.  Other zip
tools open these archives; those that they write are rejected.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import IO

ALIGNMENT = 64
"""Alignment of contents, in bytes."""

LARGE = 1 << 31
"""Sizes and offsets from here on take 64 bits, as in Python's zipfile."""

Piece = bytes | memoryview

_LOCAL = struct.Struct("<4s5H3I2H")
_CENTRAL = struct.Struct("<4s6H3I5H2I")
_END = struct.Struct("<4s4H2IH")
_END64 = struct.Struct("<4sQ2H2I4Q")
_LOCATOR = struct.Struct("<4sIQI")
_PADDING = 0xD935  # id of the extra field for alignment, as in Android packages
_ZIP64 = 1  # id of the extra field for sizes of 64 bits
_UNIX, _STORED, _UTF8 = 3, 0, 0x800
_VERSION, _VERSION64 = 20, 45
_DATE = 0x21  # 1 January 1980
_ATTRIBUTES = 0o644 << 16
_ALL = 0xFFFFFFFF
_CHUNK = 4 << 20


class ArchiveError(ValueError):
    """A file that is no such archive, or has changed since it was written."""


@dataclass(frozen=True)
class Member:
    """A member: its name, and offsets and sizes of its header and contents."""

    name: str
    size: int
    crc: int
    header: int

    @property
    def start(self) -> int:
        """Offset of the contents."""
        return self.header + len(_local(self))

    @property
    def end(self) -> int:
        """End of the contents."""
        return self.start + self.size


def archive_pieces(contents: Sequence[tuple[str, Sequence[Piece]]]) -> Iterator[Piece]:
    """The bytes of the archive with these members, each given as pieces of its contents."""
    members: list[Member] = []
    at = 0
    for name, pieces in contents:
        crc = 0
        for piece in pieces:
            crc = zlib.crc32(piece, crc)
        member = Member(name, sum(map(len, pieces)), crc, at)
        yield _local(member)
        yield from pieces
        at = member.end
        members.append(member)
    yield _tail(members, at)


def read_members(file: IO[bytes]) -> tuple[Member, ...]:
    """The members of the archive in ``file``, in order; ArchiveError if it is none.

    The framing around their contents is checked, their contents are not.
    """
    total = os.fstat(file.fileno()).st_size
    if total < _END.size:
        raise ArchiveError("it is too short")
    members = tuple(_listed(file, total))
    at = members[-1].end if members else 0
    tail = _tail(members, at)
    if at + len(tail) != total or _read(file, at, len(tail)) != tail:
        raise ArchiveError("its directory is damaged, or was not written by modelcc")
    if len({member.name for member in members}) != len(members):
        raise ArchiveError("a name occurs twice")
    for member in members:
        header = _local(member)
        if _read(file, member.header, len(header)) != header:
            raise ArchiveError(f"the header of {member.name!r} is damaged")
    return members


def read_contents(file: IO[bytes], member: Member) -> bytes:
    """The contents of ``member``; ArchiveError if they have changed."""
    contents = _read(file, member.start, member.size)
    if zlib.crc32(contents) != member.crc:
        raise ArchiveError(f"{member.name!r} is damaged")
    return contents


def read_into(file: IO[bytes], member: Member, target: memoryview) -> None:
    """As :func:`read_contents`, into ``target``; reading and checking overlap, in two threads."""
    if member.size <= _CHUNK:
        target[: member.size] = read_contents(file, member)
        return
    found: Future[int] | None = None

    def checked(part: memoryview, before: Future[int] | None) -> int:
        return zlib.crc32(part, before.result() if before is not None else 0)

    with ThreadPoolExecutor(1) as other:
        for start in range(0, member.size, _CHUNK):
            part = target[start : min(start + _CHUNK, member.size)]
            _fill(file, member.start + start, part)
            found = other.submit(checked, part, found)
    if (found.result() if found is not None else 0) != member.crc:
        raise ArchiveError(f"{member.name!r} is damaged")


def _listed(file: IO[bytes], total: int) -> Iterator[Member]:
    """Members in the directory at the end of the file, as far as it is readable."""
    end: Sequence[int] = _END.unpack(_read(file, total - _END.size, _END.size))
    size, rest = end[5], _END.size
    wide = rest + _LOCATOR.size + _END64.size
    if total >= wide and _read(file, total - rest - _LOCATOR.size, 4) == b"PK\6\7":
        rest = wide
        size = int(_END64.unpack(_read(file, total - rest, _END64.size))[8])
    if size > total - rest:
        raise ArchiveError("it has no directory")
    directory = _read(file, total - rest - size, size)
    at = header = 0
    while at < len(directory):
        if at + _CENTRAL.size > len(directory):
            raise ArchiveError("its directory is cut off")
        fields: Sequence[int] = _CENTRAL.unpack_from(directory, at)
        crc, held, name_size, extra_size = fields[7], fields[9], fields[10], fields[11]
        at += _CENTRAL.size
        try:
            name = directory[at : at + name_size].decode()
        except UnicodeDecodeError as error:
            raise ArchiveError("a name in its directory is damaged") from error
        if held == _ALL:
            held = int.from_bytes(directory[at + name_size + 4 : at + name_size + 12], "little")
        member = Member(name, held, crc, header)
        header = member.end
        if header > total:
            raise ArchiveError(f"{name!r} is cut off")
        yield member
        at += name_size + extra_size


def _local(member: Member) -> bytes:
    """The header before the contents, padded to align these."""
    name, large = member.name.encode(), member.size >= LARGE
    wide = struct.pack("<HHQQ", _ZIP64, 16, member.size, member.size) if large else b""
    padding = -(member.header + _LOCAL.size + len(name) + len(wide) + 4) % ALIGNMENT
    extra = struct.pack("<HH", _PADDING, padding) + bytes(padding) + wide
    size = _ALL if large else member.size
    version = _VERSION64 if large else _VERSION
    fields = (version, _flags(member), _STORED, 0, _DATE, member.crc, size, size)
    return _LOCAL.pack(b"PK\3\4", *fields, len(name), len(extra)) + name + extra


def _flags(member: Member) -> int:
    return 0 if member.name.isascii() else _UTF8


def _central(member: Member) -> bytes:
    name, large = member.name.encode(), member.size >= LARGE
    far = member.header >= LARGE
    wide = [member.size] * 2 * large + [member.header] * far
    extra = struct.pack(f"<HH{len(wide)}Q", _ZIP64, 8 * len(wide), *wide) if wide else b""
    padding = member.start - member.header - _LOCAL.size - len(name) - 4 - 20 * large
    extra += struct.pack("<HH", _PADDING, padding) + bytes(padding)
    size = _ALL if large else member.size
    version = _VERSION64 if wide else _VERSION
    made = _UNIX << 8 | version
    fields = (made, version, _flags(member), _STORED, 0, _DATE, member.crc, size, size)
    header = _ALL if far else member.header
    record = _CENTRAL.pack(b"PK\1\2", *fields, len(name), len(extra), 0, 0, 0, _ATTRIBUTES, header)
    return record + name + extra


def _tail(members: Sequence[Member], start: int) -> bytes:
    """The directory, which begins at ``start``, and the end records."""
    directory = b"".join(map(_central, members))
    count, size = len(members), len(directory)
    if count < 0xFFFF and size < LARGE and start < LARGE:
        return directory + _END.pack(b"PK\5\6", 0, 0, count, count, size, start, 0)
    made = (_VERSION64, _VERSION64, 0, 0, count, count, size, start)
    wide = _END64.pack(b"PK\6\6", _END64.size - 12, *made)
    locator = _LOCATOR.pack(b"PK\6\7", 0, start + size, 1)
    few = min(count, 0xFFFF)
    end = _END.pack(b"PK\5\6", 0, 0, few, few, min(size, _ALL), min(start, _ALL), 0)
    return directory + wide + locator + end


def _read(file: IO[bytes], at: int, size: int) -> bytes:
    contents = os.pread(file.fileno(), size, at)
    if len(contents) == size:
        return contents
    buffer = bytearray(size)
    _fill(file, at, memoryview(buffer))
    return bytes(buffer)


def _fill(file: IO[bytes], at: int, target: memoryview) -> None:
    done = 0
    while done < len(target):
        count = os.preadv(file.fileno(), [target[done:]], at + done)
        if not count:
            raise ArchiveError("it is cut off")
        done += count
