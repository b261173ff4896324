"""SQLite files of one kind and version: opened, created, and rejected with a reason.

The format is SQLite's ordinary one with a rollback journal: one file, whose transactions are atomic
even if a process is killed at any moment.  The ``application_id`` of a file identifies it as ours,
its ``user_version`` the tables it has.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from modelcc.ir.errors import ModelError

WAIT = 30.0
"""Seconds to wait for other writers."""

_MOVE = "move it away, and a new one is made; or name another file"
_WRITABLE = "give this user the right to write the file and its folder, or name another file"


@dataclass(frozen=True)
class FileFormat:
    """Identification of a kind of file, and the statements that create its tables."""

    application: int
    version: int
    tables: Sequence[str]


def open_file(path: Path, form: FileFormat, write: bool) -> sqlite3.Connection:
    """Opens the database ``path``; :class:`ModelError` if it is not of ``form``.

    A missing one is created; read-only, it is an empty database in memory.
    """
    there = is_there(path)
    if write and not there:
        _make_folder(path.parent)
    with located(path):
        connection = _connect(path, write) if write or there else _empty(form)
    try:
        with located(path):
            return _checked(connection, path, form, write)
    except BaseException:
        connection.close()
        raise


@contextmanager
def located(path: Path) -> Generator[None]:
    """Raises errors of SQLite as :class:`ModelError`: ``path``, the reason and what to do."""
    try:
        yield
    except (sqlite3.Error, UnicodeDecodeError) as error:  # the latter for corrupt texts
        raise _fault(error).at(str(path)) from error


@contextmanager
def transaction(connection: sqlite3.Connection, kind: str = "IMMEDIATE") -> Generator[None]:
    """An atomic transaction without other writers."""
    connection.execute(f"BEGIN {kind}")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def damaged(reason: object) -> ModelError:
    """The error for a corrupt database."""
    return ModelError(f"this is no database of schedules, or a damaged one ({reason})", (), _MOVE)


def is_there(path: Path) -> bool:
    """Whether there is a file ``path``; :class:`ModelError` if it cannot be read.

    Nothing is opened: closing a file releases the locks of all connections of this process to it.
    """
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        hint = "name another file"
        raise ModelError(f"cannot be looked at ({error.strerror})", (str(path),), hint) from error
    if not stat.S_ISREG(mode):
        what = "a folder" if stat.S_ISDIR(mode) else "no ordinary file"
        raise ModelError(f"this is {what}", (str(path),), "name a file for the database")
    if not os.access(path, os.R_OK, effective_ids=True):
        hint = "give this user the right to read it, or name another file"
        raise ModelError("this user may not read it", (str(path),), hint)
    return True


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = f"the folder of the database cannot be made ({error.strerror})"
        raise ModelError(reason, (str(folder),), "name a file in another one") from error


def _connect(path: Path, write: bool) -> sqlite3.Connection:
    """Opened for writing even to read: the journal of a killed process is rolled back then."""
    uri = f"{path.absolute().as_uri()}?mode={'rwc' if write else 'rw'}"
    return sqlite3.connect(uri, uri=True, timeout=WAIT, isolation_level=None)


def _empty(form: FileFormat) -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    _make(connection, form)
    return connection


def _make(connection: sqlite3.Connection, form: FileFormat) -> None:
    for statement in form.tables:
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {form.application}")
    connection.execute(f"PRAGMA user_version = {form.version}")


def _checked(
    connection: sqlite3.Connection, path: Path, form: FileFormat, write: bool
) -> sqlite3.Connection:
    if write:
        with transaction(connection):
            if _is_new(connection, path, form):
                _make(connection, form)
            _check_pages(connection)
            # Rewrites the same number: an unwritable file fails here, before any work.
            connection.execute(f"PRAGMA user_version = {form.version}")
        return connection
    if _is_new(connection, path, form):
        connection.close()
        connection = _empty(form)
    connection.execute("PRAGMA query_only = ON")
    return connection


def _is_new(connection: sqlite3.Connection, path: Path, form: FileFormat) -> bool:
    """Whether the file is empty; :class:`ModelError` if it is not of ``form``."""
    application, version = (
        _number(connection, "application_id"),
        _number(connection, "user_version"),
    )
    if application != form.application:
        tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if application or version or tables:
            reason, hint = "this is a database of another program", "name another file"
            raise ModelError(reason, (str(path),), hint)
        return True
    if version > form.version:
        reason = f"a newer modelcc wrote it (version {version}, this one knows {form.version})"
        raise ModelError(reason, (str(path),), "update modelcc, or name another file")
    if version < form.version:
        raise damaged(f"version {version}").at(str(path))
    return False


def _number(connection: sqlite3.Connection, pragma: str) -> int:
    return int(connection.execute(f"PRAGMA {pragma}").fetchone()[0])


def _check_pages(connection: sqlite3.Connection) -> None:
    found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if found != "ok":
        raise sqlite3.DatabaseError(str(found).replace("\n", " "))


def _fault(error: Exception) -> ModelError:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # extended codes have more in higher bits
    if code not in _FAULTS:
        return damaged(error)
    reason, hint = _FAULTS[code]
    return ModelError(f"{reason} ({error})", (), hint)


_READONLY = ("it cannot be written", _WRITABLE)
_BUSY = (f"another process has been writing it for {WAIT:.0f} s", "end that one, or try again")
_FAULTS = MappingProxyType(
    {
        sqlite3.SQLITE_READONLY: _READONLY,
        sqlite3.SQLITE_PERM: _READONLY,
        sqlite3.SQLITE_CANTOPEN: ("it, or the journal beside it, cannot be opened", _WRITABLE),
        sqlite3.SQLITE_BUSY: _BUSY,
        sqlite3.SQLITE_LOCKED: _BUSY,
        sqlite3.SQLITE_FULL: ("the disk is full", "make room, or name a file on another disk"),
        sqlite3.SQLITE_IOERR: ("it cannot be read or written", "is its disk full, or away?"),
    }
)
"""Reasons and hints by SQLite's primary result codes; the others mean corruption."""
