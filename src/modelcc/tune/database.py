"""The tuner's measurements and choices: one SQLite file.

Rows are keyed by two opaque texts: the machine, and the workload
(:mod:`modelcc.schedule.workload`).  Any number of processes may use one file; an object of
:class:`Database` belongs to the process and the thread that opened it.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Any

from modelcc.artifact.replacement import replace_file
from modelcc.ir.errors import ModelError
from modelcc.tune.sqlite_file import FileFormat, damaged, is_there, located, open_file, transaction

FILE = "schedules.sqlite"
"""Name of the database in the folder of caches."""

FORMAT = FileFormat(
    application=0x6D636373,  # "mccs"
    version=2,
    tables=(
        "CREATE TABLE measurements (machine TEXT NOT NULL, workload TEXT NOT NULL, "
        "schedule TEXT NOT NULL, state TEXT NOT NULL, seconds REAL NOT NULL, "
        "default_seconds REAL NOT NULL, PRIMARY KEY (machine, workload, schedule)) WITHOUT ROWID",
        "CREATE TABLE choices (machine TEXT NOT NULL, workload TEXT NOT NULL, "
        "schedule TEXT NOT NULL, PRIMARY KEY (machine, workload)) WITHOUT ROWID",
    ),
)

_RECORD = "INSERT INTO measurements VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
_CHOOSE = "INSERT INTO choices VALUES (?, ?, ?) ON CONFLICT DO "
_REPLACE = "UPDATE SET schedule = excluded.schedule"


class State(StrEnum):
    """The outcome of a candidate."""

    measured = "measured"
    crashed = "crashed"
    hung = "hung"


@dataclass(frozen=True)
class Measurement:
    """The result of ``schedule``: seconds of a call, and of the default's in the same turns.

    They are 0.0 if there are none: the candidate crashed, or hung.
    """

    workload: str
    schedule: str
    state: State
    seconds: float = 0.0
    default: float = 0.0

    def __post_init__(self) -> None:
        if not all(math.isfinite(time) and time >= 0 for time in (self.seconds, self.default)):
            raise ValueError(f"{self.seconds} and {self.default} are no seconds")

    @property
    def gain(self) -> float | None:
        """Speedup over the default; None if unknown."""
        return self.default / self.seconds if self.seconds and self.default else None


@dataclass(frozen=True)
class Database:
    """An open file; leaving the context closes it.  All failures raise :class:`ModelError`."""

    path: Path
    connection: sqlite3.Connection

    @classmethod
    def open(cls, path: Path, write: bool = True) -> Database:
        """Opens the database ``path``, creating it if missing; read-only, a missing one is
        empty."""
        return cls(path, open_file(path, FORMAT, write))

    def close(self) -> None:
        """Closes the file; no queries afterwards."""
        self.connection.close()

    def __enter__(self) -> Database:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def machines(self) -> Sequence[str]:
        """Machines with any rows, in order."""
        query = "SELECT machine FROM measurements UNION SELECT machine FROM choices ORDER BY 1"
        return [str(machine) for (machine,) in self._rows(query)]

    def measurements(self, machine: str, workload: str) -> Mapping[str, Measurement]:
        """Measurements of ``workload``, by the texts of schedules."""
        where = "WHERE machine = ? AND workload = ?"
        rows = self._rows(f"SELECT * FROM measurements {where} ORDER BY 3", (machine, workload))
        return {row[2]: self._measurement(row) for row in rows}

    def record(self, machine: str, measurements: Sequence[Measurement]) -> None:
        """Stores all of ``measurements`` or none; existing ones are kept unchanged."""
        with self._writing():
            self.connection.executemany(_RECORD, [_row(machine, one) for one in measurements])

    def choose(self, machine: str, schedules: Mapping[str, str]) -> None:
        """Makes compilation use the schedules of these workloads; ``""`` withdraws a choice."""
        taken = [(machine, workload) for workload, text in schedules.items() if not text]
        given = [(machine, workload, text) for workload, text in schedules.items() if text]
        with self._writing():
            delete = "DELETE FROM choices WHERE machine = ? AND workload = ?"
            self.connection.executemany(delete, taken)
            self.connection.executemany(_CHOOSE + _REPLACE, given)

    def chosen(self, machine: str) -> Mapping[str, str]:
        """The chosen schedules for compilation, by workload."""
        query = "SELECT workload, schedule FROM choices WHERE machine = ? ORDER BY 1"
        return dict(self._rows(query, (machine,)))

    def counts(self) -> Mapping[State, int]:
        """Number of candidates by outcome."""
        found = dict(self._rows("SELECT state, count(*) FROM measurements GROUP BY 1"))
        return {state: found.get(state.value, 0) for state in State}

    def merge(self, other: Path) -> int:
        """Adds the rows of the database ``other`` that this one lacks; returns their number.

        Existing rows are kept: the first measurement of a schedule, and the choice for a workload.
        """
        if not is_there(other):
            raise ModelError("there is no such file", (str(other),), "name a database of schedules")
        with Database.open(other, write=False) as source:
            measured, choices = source.contents()
        before = self.connection.total_changes
        self._take(measured, choices)
        return self.connection.total_changes - before

    def export(self, path: Path) -> None:
        """Writes the same rows to the file ``path``; equal rows give identical bytes."""
        measured, choices = self.contents()

        def save(target: Path) -> None:
            with Database.open(target) as copy:
                copy._take(measured, choices)

        try:
            self._check_target(path)
            replace_file(path, save)
        except OSError as error:
            hint = "name a file in a folder that can be written"
            raise ModelError(f"cannot be written ({error.strerror})", (str(path),), hint) from error

    def clear(self) -> int:
        """Deletes all rows; returns their number."""
        with self._writing():
            tables = ("measurements", "choices")
            return sum(self.connection.execute(f"DELETE FROM {t}").rowcount for t in tables)

    def contents(self) -> tuple[Sequence[tuple[str, Measurement]], Sequence[tuple[str, str, str]]]:
        """A consistent snapshot of all rows, sorted: measurements with their machine, and
        choices."""
        with located(self.path), transaction(self.connection, "DEFERRED"):
            rows = self._rows("SELECT * FROM measurements ORDER BY 1, 2, 3")
            measured = [(str(row[0]), self._measurement(row)) for row in rows]
            choices = self._rows("SELECT * FROM choices ORDER BY 1, 2")
        return measured, [(str(m), str(w), str(s)) for m, w, s in choices]

    def _take(
        self, measured: Iterable[tuple[str, Measurement]], choices: Iterable[tuple[str, str, str]]
    ) -> None:
        with self._writing():
            self.connection.executemany(_RECORD, [_row(m, one) for m, one in measured])
            self.connection.executemany(_CHOOSE + "NOTHING", choices)

    def _check_target(self, path: Path) -> None:
        """Raises :class:`ModelError` if anything but an earlier export would be overwritten."""
        if not path.exists() or not (path.is_file() or path.is_dir()):  # devices and pipes
            return
        if self.path.exists() and path.samefile(self.path):
            reason = "this is the database itself, which others may be writing"
            raise ModelError(reason, (str(path),), "name another file")
        Database.open(path, write=False).close()

    def _rows(self, query: str, arguments: tuple[str, ...] = ()) -> list[tuple[Any, ...]]:
        with located(self.path), closing(self.connection.execute(query, arguments)) as cursor:
            return cursor.fetchall()

    @contextmanager
    def _writing(self) -> Generator[None]:
        with located(self.path), transaction(self.connection):
            yield

    def _measurement(self, row: tuple[Any, ...]) -> Measurement:
        _, workload, schedule, state, seconds, default = row
        try:
            return Measurement(workload, schedule, State(state), seconds, default)
        except (TypeError, ValueError) as error:
            raise damaged(error).at(str(self.path)) from error


def _row(machine: str, one: Measurement) -> tuple[str, str, str, str, float, float]:
    return machine, one.workload, one.schedule, one.state.value, one.seconds, one.default
