"""Chains of layers computed some rows at a time, so that no whole intermediate image is stored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from modelcc.ir.condition import Condition
from modelcc.ir.index import Index, Sym, maximum
from modelcc.ir.naming import Names
from modelcc.ir.region import Carry, Repeat
from modelcc.ir.scalar_tree import transform
from modelcc.ir.tensor import (
    Apply,
    Axis,
    Guard,
    Item,
    Kernel,
    Number,
    Read,
    Scalar,
    Stage,
    TensorProgram,
    counters,
)
from modelcc.ir.types import TensorType
from modelcc.passes.tensor.row_stream import RowImage, RowStream, row_stream
from modelcc.passes.tensor.row_windows import RowKernel, RowSum, RowWindow, with_extent


@dataclass(frozen=True)
class StreamRows:
    """Items ``first`` to ``last`` in a loop that computes ``rows`` of the last image per iteration.

    Rows that later iterations need are copied, or, with ``slide``, an image's rows are in one
    buffer, in which they slide to its beginning: less memory for few new and many old rows.

    before::

        program @main(%x: f32[4, 2]) -> (%s) {
          kernel @Exp(%x: f32[4, 2]) -> (%e: f32[4, 2]) {
            %e: f32[4, 2] = [i < 4, j < 2] exp(%x[i, j])
          }
          kernel @Sum(%e: f32[4, 2]) -> (%s: f32[3, 2]) {
            %s: f32[3, 2] = [i < 3, j < 2] sum[k < 2] %e[i + k, j]
          }
        }

    after::

        program @main(%x: f32[4, 2]) -> (%s) {
          kernel @Pad() -> (%e.first: f32[1, 2]) {
            %e.first: f32[1, 2] = [i0 < 1, i1 < 2] 0.0
          }
          repeat [turn < 4] carry(%e.kept: f32[1, 2] = %e.first then %e.next last %e.end) fill(%s: f32[3, 2]) {
            kernel @LoadRows(%x: f32[4, 2]) -> (%x.rows: f32[1, 2]) {
              %x.rows: f32[1, 2] = [i0 < 1, i1 < 2] %x[i0 + turn, i1]
            }
            kernel @Kept(%e.kept: f32[1, 2]) -> (%e: f32[2, 2]) {
              %e: f32[2, 2] = [i0 < 1, i1 < 2] %e.kept[i0, i1]
            }
            kernel @Exp(%x.rows: f32[1, 2]) -> (%e: f32[2, 2]) {
              %e[i + 1, j]: f32[2, 2] = [i < 1, j < 2] exp(%x.rows[i, j])
            }
            kernel @Keep(%e: f32[2, 2]) -> (%e.next: f32[1, 2]) {
              %e.next: f32[1, 2] = [i0 < 1, i1 < 2] %e[i0 + 1, i1]
            }
            kernel @Sum(%e: f32[2, 2]) -> (%s: f32[3, 2]) {
              %s.all: f32[1, 2] = [i < 1, j < 2] sum[k < 2] %e[i + k, j]
              %s[i + max(turn - 1, 0), j]: f32[3, 2] = [i < 1, j < 2] (%s.all[i, j] if [0 <= i + turn - 1] else 0.0)
            }
          }
        }
    """  # noqa: E501

    first: int = 0
    last: int = 1
    rows: int = 1
    slide: bool = False

    def __call__(self, program: TensorProgram) -> TensorProgram:
        stream = row_stream(program, self.first, self.last, self.rows)
        writer = _StreamWriter(program, stream, self.slide, _turn(program))
        before, after = program.items[: self.first], program.items[self.last + 1 :]
        items = (*before, *writer.items(), *after)
        whole = replace(program, types=writer.types)
        return whole.with_items(items)


def _turn(program: TensorProgram) -> Sym:
    """A counter name that no dimension, axis or other counter has."""
    kernels = [item for item in program.items if isinstance(item, Kernel)]
    axes = (a.name for k in kernels for s in k.stages for a in (*s.axes, *s.reduce))
    return Sym(Names({*program.dims, *axes, *counters(program.items)}).fresh("turn"))


@dataclass
class _StreamWriter:
    """Builds the loop; ``types`` are those of the resulting program."""

    program: TensorProgram
    stream: RowStream
    slide: bool
    turn: Sym
    types: dict[str, TensorType] = field(init=False)
    names: Names = field(init=False)
    carries: list[Carry] = field(default_factory=list[Carry])
    before: list[Item] = field(default_factory=list[Item])

    def __post_init__(self) -> None:
        self.types = dict(self.program.types)
        self.names = Names(self.types)

    def items(self) -> Iterator[Item]:
        """The items before the loop, the loop, and those after it."""
        kernels, total = self.stream.kernels, self.stream.total
        body = [item for kernel in kernels for item in self._kernel(kernel)]
        after: list[Item] = []
        if total is not None:
            body += self._summed(total)
            after = [self._rest(total)]
        sources = [n for k in (*kernels, *([total] if total else ())) for n in k.kernel.source]
        filled = () if total is not None else (kernels[-1].output,)
        loop = Repeat[Item](
            self.turn.name, self.stream.trips, tuple(self.carries), filled, tuple(body), None,
            tuple(dict.fromkeys(sources)),
        )  # fmt: skip
        yield from (*self.before, loop, *after)

    def _kernel(self, kernel: RowKernel) -> Iterator[Item]:
        image = self.stream.images[kernel.output]
        is_last = self.stream.total is None and kernel is self.stream.kernels[-1]
        loads = {w.tensor: w for w in kernel.windows if w.tensor not in self.stream.images}
        buffers: dict[str, str] = {}
        for window in loads.values():
            load, buffers[window.tensor] = self._load(kernel, window)
            yield load
        if not is_last:
            yield from self._kept(kernel.output, image)
        self.types[kernel.output] = self._sized(
            kernel.output, image.dim, image.rows * self.stream.trips - image.lag if is_last
            else image.kept + image.rows,
        )  # fmt: skip
        yield self._some_rows(kernel, image, buffers, is_last)
        if not is_last:
            yield from self._keep(kernel.output, image)

    def _some_rows(
        self, kernel: RowKernel, image: RowImage, buffers: Mapping[str, str], is_last: bool
    ) -> Kernel:
        """The kernel for the rows of an iteration."""
        windows = {w.tensor: w for w in kernel.windows}
        stages: list[Stage] = []
        for stage, axis in zip(kernel.stages, kernel.axes, strict=True):

            def visit(node: Scalar) -> Scalar:
                if not isinstance(node, Read) or node.tensor not in windows:
                    return node
                window = windows[node.tensor]
                indices = _moved(node.indices, window.dim, self._shift(kernel, window))
                return replace(node, tensor=buffers.get(node.tensor, node.tensor), indices=indices)

            body = transform(stage.body, visit)
            axes = with_extent(stage.axes, axis, image.rows)
            here = replace(stage, axes=axes, body=body)
            if stage.output == kernel.output:
                stages += self._final(here, axis, image, is_last)
            else:
                dim = kernel.inner[stage.output]
                self.types[stage.output] = self._sized(stage.output, dim, image.rows)
                stages.append(here)
        inputs = tuple(buffers.get(name, name) for name in kernel.kernel.inputs)
        return replace(kernel.kernel, inputs=inputs, stages=tuple(stages))

    def _final(self, stage: Stage, axis: str, image: RowImage, is_last: bool) -> Iterator[Stage]:
        """The stage of the result, after kept rows, with a pad beyond the image's ends."""
        body, name = stage.body, stage.output
        if stage.reduce and any(self._ends(image)):  # a pad must not be summed
            inner = self.names.fresh(f"{name}.all")
            self.types[inner] = self._sized(name, image.dim, image.rows)
            yield replace(stage, output=inner)
            body = Read(inner, stage.write, self.types[inner].dtype)
            stage = replace(stage, reduce=(), combine=None)
        number = self._number(image) + Sym(axis)
        body = _within(number, image.extent, body, image.pad, self._ends(image))
        at = maximum(0, self._number(image)) if is_last else image.kept
        yield replace(stage, body=body, write=_moved(stage.write, image.dim, at))

    def _shift(self, kernel: RowKernel, window: RowWindow) -> int:
        """Position in the buffer of an image of the row that is read for row 0 of the iteration."""
        image = self.stream.images.get(window.tensor)
        if image is None:
            return -window.first
        lag = self.stream.images[kernel.output].lag
        return image.kept + image.lag - window.scale * lag

    def _number(self, image: RowImage) -> Index:
        """The row number in the image of the first new row."""
        return self.turn * image.rows - image.lag

    def _ends(self, image: RowImage) -> tuple[bool, bool]:
        """Whether some iteration has rows before the first one, and after the last one."""
        return image.lag > 0, image.rows * self.stream.trips - image.lag > image.extent

    def _load(self, kernel: RowKernel, window: RowWindow) -> tuple[Kernel, str]:
        """Copies the rows of a complete image that a kernel reads in an iteration."""
        own = self.stream.images[kernel.output]
        rows = window.scale * (own.rows - 1) + window.last - window.first + 1
        start = window.scale * self._number(own) + window.first
        most = window.scale * (own.rows * self.stream.trips - own.lag - 1) + window.last
        extent = self.program.types[window.tensor].shape[window.dim]
        assert isinstance(extent, int)
        ends = window.first - window.scale * own.lag < 0, most >= extent
        name = self.names.fresh(f"{window.tensor}.rows")
        self.types[name] = self._sized(window.tensor, window.dim, rows)
        axes, at = self._axes(name)
        number = start + at[window.dim]
        indices = (*at[: window.dim], number, *at[window.dim + 1 :])
        read = Read(window.tensor, indices, self.types[name].dtype)
        body = _within(number, extent, read, window.pad or 0, ends)
        return _copy("LoadRows", name, axes, at, body, kernel.kernel.source), name

    def _kept(self, name: str, image: RowImage) -> Iterator[Item]:
        """Rows of earlier iterations, initially pads, before new ones."""
        if not image.kept:
            return
        state, first, end = (self.names.fresh(f"{name}.{n}") for n in ("kept", "first", "end"))
        following = name if self.slide else self.names.fresh(f"{name}.next")
        whole = image.kept + image.rows if self.slide else image.kept
        type_ = self._sized(name, image.dim, whole)
        self.types |= dict.fromkeys((state, first, following, end), type_)
        self.carries.append(Carry(state, first, following, end))
        axes, at = self._axes(state)
        self.before.append(_copy("Pad", first, axes, at, Number(image.pad, type_.dtype), ()))
        axes = with_extent(axes, f"i{image.dim}", image.kept)
        source = _moved(at, image.dim, image.rows if self.slide else 0)
        yield _copy("Kept", name, axes, at, Read(state, source, type_.dtype), ())

    def _keep(self, name: str, image: RowImage) -> Iterator[Item]:
        """The last rows for the next iteration, unless they slide."""
        if not image.kept or self.slide:
            return
        following = self.carries[-1].next
        axes, at = self._axes(following)
        read = Read(name, _moved(at, image.dim, image.rows), self.types[name].dtype)
        yield _copy("Keep", following, axes, at, read, ())

    def _summed(self, total: RowSum) -> Iterator[Item]:
        """Adds the sum of an iteration's rows to the running sum."""
        stage, image = total.kernel.stages[0], self.stream.images[total.window.tensor]
        type_ = self.types[stage.output]
        part, state, first, following = (
            self.names.fresh(f"{stage.output}.{word}") for word in ("rows", "sum", "first", "next")
        )
        self.types |= dict.fromkeys((part, state, first, following, stage.output), type_)
        self.carries.append(Carry(state, first, following, stage.output))
        axes, at = self._axes(state)
        zero = Number(0, type_.dtype)
        self.before.append(_copy("Zero", first, axes, at, zero, ()))
        number = self._number(image) + Sym(total.axis)

        def visit(node: Scalar) -> Scalar:
            if isinstance(node, Read):
                return replace(node, indices=_moved(node.indices, image.dim, image.kept))
            return node

        rows = replace(
            stage,
            output=part,
            body=_within(number, image.extent, transform(stage.body, visit), 0, self._ends(image)),
            reduce=with_extent(stage.reduce, total.axis, image.rows),
        )
        both = (Read(state, at, type_.dtype), Read(part, at, type_.dtype))
        added = Stage(following, axes, at, Apply("add", both, type_.dtype))
        inputs = (total.window.tensor, state)
        yield replace(total.kernel, inputs=inputs, outputs=(following,), stages=(rows, added))

    def _rest(self, total: RowSum) -> Kernel:
        """The epilogue of the sum."""
        stages = total.kernel.stages[1:]
        inputs = [n for n in total.kernel.inputs if n != total.window.tensor]
        name = total.kernel.stages[0].output
        return replace(total.kernel, stages=stages, inputs=(name, *inputs))

    def _sized(self, name: str, dim: int, extent: int) -> TensorType:
        type_ = self.program.types[name]
        shape = tuple(extent if n == dim else d for n, d in enumerate(type_.shape))
        return replace(type_, shape=shape)

    def _axes(self, name: str) -> tuple[tuple[Axis, ...], tuple[Sym, ...]]:
        """Axes over a tensor, and its element at these."""
        shape = self.types[name].shape
        axes = tuple(Axis(f"i{n}", extent) for n, extent in enumerate(shape))
        return axes, tuple(Sym(a.name) for a in axes)


def _copy(
    name: str, output: str, axes: tuple[Axis, ...], at: tuple[Index, ...], body: Scalar,
    source: tuple[str, ...],
) -> Kernel:  # fmt: skip
    stage = Stage(output, axes, at, body)
    inputs = (body.inside if isinstance(body, Guard) else body,)
    read = tuple(node.tensor for node in inputs if isinstance(node, Read))
    return Kernel(name, read, (output,), (stage,), source)


def _within(
    number: Index, extent: int, inside: Scalar, pad: float | int | bool, ends: tuple[bool, bool]
) -> Scalar:
    """``inside`` where a row is in the image, else ``pad``; ``ends``: sides where it may not be."""
    low, high = Condition(0, "<=", number), Condition(number, "<", extent)
    conditions = tuple(c for c, may in ((low, ends[0]), (high, ends[1])) if may)
    if not conditions:
        return inside
    return Guard(conditions, inside, Number(pad, inside.dtype), inside.dtype)


def _moved(indices: Sequence[Index], dim: int, by: Index) -> tuple[Index, ...]:
    return tuple(index + by if n == dim else index for n, index in enumerate(indices))
