"""Times of each kernel, kept in one file: ``python -m benchmarks.gpu.profiles FILE``.

Without more it lists all models with the time of a call, of their kernels, and what the machine's
rates allow (roof); with ``--name`` the kernels that lose most against their roofs, and with
``--before`` how all that compares with an earlier file.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

FILE = "profiles.json.gz"
NODES = 3
"""Nodes kept per kernel, the last ones."""

MOVED = "transfer"
"""Prefix of the names of steps that transfer tensors between memories."""


@dataclass(frozen=True)
class Kernel:
    """All ``launches`` of a function in a call: total seconds, and the roofline bound; total
    operations and bytes, and nodes of the first launch."""

    function: str
    launches: int
    seconds: float
    roof: float
    flops: int
    bytes: int
    source: str = ""

    @property
    def lost(self) -> float:
        """Seconds above the roofline bound."""
        return self.seconds - self.roof


@dataclass(frozen=True)
class Profile:
    """A model or a single kernel: ``call`` is the seconds of a whole call with inputs and results
    on the device, None if not measured; ``moved`` those of transfers."""

    name: str
    error: float | None
    call: float | None
    moved: float
    kernels: tuple[Kernel, ...]

    @property
    def seconds(self) -> float:
        """Total of all kernels."""
        return sum(kernel.seconds for kernel in self.kernels)

    @property
    def roof(self) -> float:
        """Total of all kernels."""
        return sum(kernel.roof for kernel in self.kernels)

    def worst(self, count: int) -> Sequence[Kernel]:
        """Kernels that lose most."""
        return sorted(self.kernels, key=lambda kernel: -kernel.lost)[:count]

    def lines(self, count: int) -> Iterator[str]:
        """Totals, and the kernels that lose most, as plain text."""
        whole = "" if self.call is None else f"call {_us(self.call)} us, "
        at = f"kernels {_us(self.seconds)} us, roof {_us(self.roof)} us"
        yield f"{self.name}: {whole}{at}"
        for kernel in self.worst(count):
            function, *cells, _ = _cells(kernel)
            yield "   " + "  ".join(f"{cell:>8}" for cell in cells) + f"  {function}"


class Profiles:
    """All profiles by name, stored in the files ``paths`` after each; the first file is resumed."""

    def __init__(self, *paths: Path) -> None:
        self.paths = paths
        self.found = dict(read(paths[0])) if paths and paths[0].exists() else {}

    def add(self, profile: Profile) -> None:
        """Stores it, replacing an earlier one of its name."""
        self.found[profile.name] = profile
        text = json.dumps([_data(one) for one in self.found.values()], separators=(",", ":"))
        for path in self.paths:
            partial = path.with_suffix(".partial")
            partial.write_bytes(gzip.compress(text.encode()))
            partial.replace(path)


def _data(profile: Profile) -> dict[str, Any]:
    """Kernels as lists without field names."""
    return {**vars(profile), "kernels": [list(vars(k).values()) for k in profile.kernels]}


def _profile(data: Mapping[str, Any]) -> Profile:
    fields: dict[str, Any] = {**data, "kernels": tuple(Kernel(*k) for k in data["kernels"])}
    return Profile(**fields)


def read(path: Path) -> Mapping[str, Profile]:
    """What :class:`Profiles` wrote."""
    found = map(_profile, json.loads(gzip.decompress(path.read_bytes())))
    return {profile.name: profile for profile in found}


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:.1f}"


def _cells(kernel: Kernel) -> Sequence[str]:
    """Function, launches, seconds, roof, seconds lost, part of the roof, rates, nodes."""
    times = _us(kernel.seconds), _us(kernel.roof), _us(kernel.lost)
    part = f"{kernel.roof / kernel.seconds:.0%}" if kernel.seconds else ""
    rates = [n / kernel.seconds if kernel.seconds else 0.0 for n in (kernel.flops, kernel.bytes)]
    tera, giga = f"{rates[0] * 1e-12:.1f} TF", f"{rates[1] * 1e-9:.0f} GB/s"
    return kernel.function, str(kernel.launches), *times, part, tera, giga, kernel.source


def models_table(found: Mapping[str, Profile], before: Mapping[str, Profile]) -> Table:
    """A row for each, with the speedup since ``before``."""
    table = Table("", "error", "call us", "kernels us", "roof us", "of roof", "moved us")
    for column in ("call before", "kernels before") if before else ():
        table.add_column(column)
    for profile in found.values():
        error = "" if profile.error is None else f"{profile.error:.0e}"
        call = "" if profile.call is None else _us(profile.call)
        part = f"{profile.roof / profile.seconds:.0%}" if profile.seconds else ""
        row = [profile.name, error, call, _us(profile.seconds), _us(profile.roof), part]
        row.append(_us(profile.moved))
        if profile.name in before:
            earlier = before[profile.name]
            row += [_times(earlier.call, profile.call), _times(earlier.seconds, profile.seconds)]
        table.add_row(*row)
    return table


def _times(before: float | None, now: float | None) -> str:
    return f"x{before / now:.2f}" if before and now else ""


def kernels_table(profile: Profile, count: int, before: Profile | None) -> Table:
    """The kernels that lose most; those of ``before`` are matched by function."""
    table = Table(title=profile.name)
    heads = ("kernel", "launches", "us", "roof us", "lost us", "of roof", "", "", "nodes")
    for head in (*heads, "before") if before else heads:
        table.add_column(head)
    earlier = {kernel.function: kernel.seconds for kernel in before.kernels} if before else {}
    for kernel in profile.worst(count):
        extra = [_times(earlier.get(kernel.function), kernel.seconds)] if before else []
        table.add_row(*_cells(kernel), *extra)
    return table


def parser() -> argparse.ArgumentParser:
    """What the command takes."""
    made = argparse.ArgumentParser(prog="benchmarks.gpu.profiles", description=__doc__)
    made.add_argument("file", type=Path)
    made.add_argument("--before", type=Path, help="an earlier file")
    made.add_argument("--name", default="", help="part of the names of models to look into")
    made.add_argument("--top", type=int, default=10, help="kernels of each")
    return made


def main(arguments: Sequence[str] | None = None, console: Console | None = None) -> int:
    """Show it."""
    given = parser().parse_args(arguments)
    console = console or Console()
    found, before = read(given.file), read(given.before) if given.before else {}
    console.print(models_table(found, before))
    for profile in found.values() if given.name else ():
        if given.name in profile.name:
            console.print(kernels_table(profile, given.top, before.get(profile.name)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
