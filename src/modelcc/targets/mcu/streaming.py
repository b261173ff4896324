"""Chooses layers to stream by rows so that a model fits into memory, and the number of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod

from modelcc.ir.errors import ModelError
from modelcc.ir.index import Sym
from modelcc.ir.scalar_tree import reads
from modelcc.ir.tensor import Axis, Kernel, TensorProgram, item_inputs, item_outputs
from modelcc.passes.tensor.row_stream import RowStream, row_stream
from modelcc.passes.tensor.row_windows import NoRowsError, RowKernel
from modelcc.passes.tensor.stream_rows import StreamRows
from modelcc.targets.mcu.convolution import PIXELS

ROWS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16)
"""Candidate numbers of rows of the last image per iteration."""

TRIED = 20
"""Maximum number of programs that are scheduled and planned to determine their memory."""

_COPY, _CALL = 4, 60
"""Instructions per copied byte, and per call."""


@dataclass(frozen=True)
class MemoryNeed:
    """Bytes of memory of a program, including those of the stack, and the nodes at its peak."""

    bytes: int
    stack: int
    source: tuple[str, ...]


@dataclass(frozen=True)
class _Candidate:
    """A way to stream, its estimated cost in instructions, and a lower bound of its bytes."""

    step: StreamRows
    cost: float
    least: int


@dataclass(frozen=True)
class StreamToFit:
    """Streams no more than needed to fit into ``ram`` bytes; ``needs`` determines a program's
    memory.

    ``others`` are hints besides those for any model.
    """

    ram: int
    needs: Callable[[TensorProgram], MemoryNeed]
    others: tuple[str, ...] = ()

    def __call__(self, program: TensorProgram) -> TensorProgram:
        """Raises :class:`ModelError` with the minimum memory needed if nothing fits."""
        nearest = self.needs(program)
        if nearest.bytes <= self.ram:
            return program
        found = sorted(_candidates(program), key=lambda one: one.cost)
        hopeful = [one for one in found if one.least + nearest.stack <= self.ram]
        smallest = sorted(found, key=lambda one: one.least)[: TRIED // 3]
        for one in (*hopeful[:TRIED], *smallest):
            streamed = one.step(program)
            need = self.needs(streamed)
            if need.bytes <= self.ram:
                return streamed
            nearest = min(nearest, need, key=lambda n: n.bytes)
        what = f"{program.name} needs {nearest.bytes} bytes of memory, {self.ram} are there"
        known = f"--ram {nearest.bytes}", *self.others, "a smaller input"
        hint = f"{', '.join(known)}, or fewer channels where it needs most"
        raise ModelError(f"{what}, however many rows are streamed", nearest.source, hint)


def _candidates(program: TensorProgram) -> Iterator[_Candidate]:
    """Ways to stream runs of kernels."""
    items = program.items
    for first, item in enumerate(items):
        for last in range(first + 1, len(items) if isinstance(item, Kernel) else 0):
            if not isinstance(items[last], Kernel):
                break
            yield from _of_run(program, first, last)


def _of_run(program: TensorProgram, first: int, last: int) -> Iterator[_Candidate]:
    for rows in ROWS:
        try:
            stream = row_stream(program, first, last, rows)
        except NoRowsError:
            if rows == 1:
                return
            continue
        if stream.trips < 2:
            return
        cost = _cost(program, stream)
        outside, within = _live(program, first, last)
        for slide in (False, True):
            least = max(outside, within + _inside(program, stream, slide))
            copied = _copied(program, stream, slide)
            yield _Candidate(StreamRows(first, last, rows, slide), cost + copied * _COPY, least)


def _cost(program: TensorProgram, stream: RowStream) -> float:
    """Instructions in excess of computing whole images, without copies."""
    found = float(stream.trips * len(stream.kernels) * _CALL)
    for kernel in stream.kernels:
        image = stream.images[kernel.output]
        stage = kernel.stages[0]
        steps = prod(_number(a) for a in stage.reduce)
        points = prod(_number(a) for a in stage.axes) * steps
        pixels = _pixels(kernel) * image.rows
        if pixels and steps > 1:
            blocks = -(-pixels // PIXELS) * PIXELS
            found += points * (blocks / pixels - 1)
        for w in kernel.windows:
            if w.tensor not in stream.images:
                rows = w.scale * (image.rows - 1) + w.last - w.first + 1
                found += stream.trips * rows * _row_bytes(program, w.tensor, w.dim) * _COPY
    return found


def _pixels(kernel: RowKernel) -> int:
    """Pixels of a row whose channels are computed together; 0 if they are separate."""
    stage = kernel.stages[0]
    channel = stage.axes[-1]
    images = {w.tensor for w in kernel.windows}
    if any(Sym(channel.name) in r.indices for r in reads(stage.body) if r.tensor in images):
        return 0
    rows = next(a for a in stage.axes if a.name == kernel.axes[0])
    return prod(_number(a) for a in stage.axes[:-1]) // _number(rows)


def _number(axis: Axis) -> int:
    assert isinstance(axis.extent, int)
    return axis.extent


def _copied(program: TensorProgram, stream: RowStream, slide: bool) -> int:
    """Bytes of rows that are kept between iterations, in total."""
    return sum(
        stream.trips * image.kept * _row_bytes(program, name, image.dim) * (1 if slide else 2)
        for name, image in stream.images.items()
    )


def _inside(program: TensorProgram, stream: RowStream, slide: bool) -> int:
    """Lower bound of the bytes of an iteration's images."""
    size = {n: _row_bytes(program, n, i.dim) for n, i in stream.images.items()}
    kept = {
        n: i.kept * size[n] + (i.rows * size[n] if slide and i.kept else 0)
        for n, i in stream.images.items()
    }
    new = {
        n: 0 if slide and i.kept else (i.kept + i.rows) * size[n] for n, i in stream.images.items()
    }
    last = [*size][-1] if stream.total is None else ""
    kept[last] = new[last] = 0
    working = (
        max(new[k.output], sum(new.get(w.tensor, 0) for w in k.windows)) for k in stream.kernels
    )
    return sum(kept.values()) + max(working)


def _live(program: TensorProgram, first: int, last: int) -> tuple[int, int]:
    """Lower bounds of the live bytes between items outside of a run, and throughout the run: an
    item's operands and results are assumed to overlap."""
    run = program.items[first : last + 1]
    made = {n for item in run[:-1] for n in item_outputs(item)}
    groups = [
        *((i,) for i in program.items[:first]),
        run,
        *((i,) for i in program.items[last + 1 :]),
    ]
    ends: dict[str, int] = {name: len(groups) for name in program.outputs}
    for number, group in reversed(list(enumerate(groups))):
        for name in (n for item in group for n in item_inputs(item)):
            ends.setdefault(name, number)
    begins = {name: -1 for name in program.inputs}
    for number, group in enumerate(groups):
        begins |= {n: number for item in group for n in item_outputs(item) if n not in made}
    sizes = {n: _bytes(program, n) for n in begins if n in ends}
    between = [
        sum(size for n, size in sizes.items() if begins[n] < number <= ends[n])
        for number in range(len(groups) + 1)
    ]
    within = max(between[first], between[first + 1])
    return max(between), within


def _bytes(program: TensorProgram, name: str) -> int:
    size = program.types[name].bytes
    return size if isinstance(size, int) else 0


def _row_bytes(program: TensorProgram, name: str, dim: int) -> int:
    extent = program.types[name].shape[dim]
    return _bytes(program, name) // extent if isinstance(extent, int) and extent else 0
