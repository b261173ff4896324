"""The division of a program between a device and its host, and transfers between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from modelcc.ir.index import evaluate
from modelcc.ir.library import Callee, meaning_of
from modelcc.ir.loop_traversal import grid_loop
from modelcc.ir.program import Launch, Program, Transfer, counters, leaves
from modelcc.targets.kernel_use import DeviceFacts, GroupUse


@dataclass(frozen=True)
class HostRow:
    """A function that runs on the host, and the user's nodes that it computes."""

    function: str
    source: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.function} from {', '.join(self.source) or 'the compiler'}"


@dataclass(frozen=True)
class DeviceShare:
    """Launches on the device, those on the host, and transfers with their bytes; ``machine`` is the
    one that kernels are scheduled for, and ``uses`` their resource usage.

    Steps of loops and of both sides of branches count once.
    """

    launches: int
    host: tuple[HostRow, ...]
    uploads: int
    uploaded: int
    downloads: int
    downloaded: int
    machine: str = ""
    uses: tuple[GroupUse, ...] = ()

    @property
    def work(self) -> str:
        """Text on where kernels run."""
        return f"{self.launches} kernels on the device, {len(self.host)} on the processor"

    @property
    def moved(self) -> str:
        """Text on the transfers of a call."""
        there = f"{self.uploaded} bytes to the device in {self.uploads} transfers"
        return f"{there}, {self.downloaded} from there in {self.downloads}"


def device_share(
    program: Program, env: Mapping[str, int], facts: DeviceFacts | None = None
) -> DeviceShare | None:
    """The share of ``program`` for these dimensions, with the ``facts`` of its kernels; None if
    none of it runs on a device."""
    grouped = {c.name for c in program.callees if _is_grouped(c)}
    steps = list(leaves(program.steps))
    moves = [step for step in steps if isinstance(step, Transfer)]
    if not grouped and not moves:
        return None
    inside = {**dict.fromkeys(program.read_sizes, 1), **counters(program.steps), **env}
    up, down = (
        [evaluate(program.types[m.tensor].bytes, inside) for m in moves if m.to == side]
        for side in ("device", "host")
    )
    launches = [step for step in steps if isinstance(step, Launch)]
    host = tuple(HostRow(s.callee, s.source) for s in launches if s.callee not in grouped)
    count = len(launches) - len(host)
    share = DeviceShare(count, host, len(up), sum(up), len(down), sum(down))
    if facts is None:
        return share
    return replace(share, machine=facts.machine, uses=tuple(facts.uses.values()))


def share_from_data(data: Mapping[str, Any] | None) -> DeviceShare | None:
    """A share from its JSON data."""
    if data is None:
        return None
    rows: Sequence[Mapping[str, Any]] = data["host"]
    host = tuple(HostRow(row["function"], tuple(row["source"])) for row in rows)
    uses: Sequence[Mapping[str, Any]] = data.get("uses", ())
    numbers: dict[str, Any] = {**data, "host": host, "uses": tuple(GroupUse(**u) for u in uses)}
    return DeviceShare(**numbers)


def _is_grouped(callee: Callee) -> bool:
    return grid_loop(meaning_of(callee)) is not None


USES = ("threads", "shared", "registers", "local", "planned", "occupancy")
"""Columns of the table of kernels' resource usage."""


def use_cells(use: GroupUse) -> tuple[str, ...]:
    """Texts of these columns: bytes of memory, parts of a unit's threads; a dash for values that
    the driver decides."""
    taken = (use.registers, use.local)
    numbers = [str(use.threads), str(use.shared), *("-" if n is None else str(n) for n in taken)]
    part = "-" if use.occupancy is None else f"{use.occupancy:.0%}"
    return (*numbers, f"{use.planned:.0%}", part)
