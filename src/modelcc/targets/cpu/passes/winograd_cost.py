"""When Winograd's algorithms are faster than direct convolution: estimated cycles of one core."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from modelcc.targets.cpu.machine import CpuModel


@dataclass(frozen=True)
class Shape:
    """A convolution of ``images`` with ``inputs`` channels to ``outputs`` × height × width, by
    ``constant`` or run-time filters."""

    images: int
    inputs: int
    outputs: int
    height: int
    width: int
    constant: bool = True


@dataclass(frozen=True)
class Choice:
    """Tiles of ``m`` × ``m`` outputs, rows of tiles in ``blocks``."""

    m: int
    blocks: int


@dataclass(frozen=True)
class WinogradCost:
    """Cycles of ``machine`` from operation counts and bytes moved.

    ``margin``: required ratio of estimated times, which pays for filters of 16/9 or 4 times the
    size.
    """

    machine: CpuModel = field(default_factory=CpuModel)
    margin: float = 1.15
    sizes: tuple[int, ...] = (4, 2)

    def choose(self, shape: Shape, apart: bool = False) -> Choice | None:
        """The fastest algorithm; None if direct convolution is.

        With separate images (``apart``), a block is of one image, with its values on a thread's
        stack.
        """
        best = self.fastest(shape, apart, self.sizes)
        limit = self.direct(shape) / self.margin
        return best if best is not None and self._cycles(shape, best, apart) < limit else None

    def fastest(self, shape: Shape, apart: bool, sizes: Sequence[int]) -> Choice | None:
        """The fastest algorithm with tiles of one of ``sizes``, even if direct convolution is
        faster; None if no block's values fit on a stack."""
        options = (c for c in self._choices(shape, apart, sizes))
        key = min(((self._cycles(shape, c, apart), c.m, c.blocks) for c in options), default=None)
        return None if key is None else Choice(key[1], key[2])

    def _cycles(self, shape: Shape, choice: Choice, apart: bool) -> float:
        return self.winograd(shape, choice) * self._imbalance(shape, choice, apart)

    def direct(self, shape: Shape) -> float:
        """Cycles of direct convolution."""
        positions = shape.images * shape.height * shape.width
        filters = 9 * shape.inputs * shape.outputs
        compute = filters * positions / (self.machine.multiply_adds(32) * 0.95)
        return max(compute, filters * 4 / self.machine.memory_bandwidth)

    def winograd(self, shape: Shape, choice: Choice) -> float:
        """Cycles of the three parts of Winograd convolution."""
        m, points = choice.m, (choice.m + 2) ** 2
        rows, columns = -(-shape.height // m), -(-shape.width // m)
        tiles = shape.images * rows * columns
        filters = points * shape.inputs * shape.outputs
        groups = shape.images * choice.blocks if choice.blocks > 1 else 1
        compute = filters * tiles / (self.machine.multiply_adds(32) * 0.9)
        passes = groups if filters * 4 > self.machine.l2_bytes // 2 else 1
        stream = filters * 4 * passes / self._streaming(filters * 4)
        vectors = tiles / self.machine.lanes(32) * max(1, 2 / self.machine.fmas)
        steps = vectors * (self._input_step(m) * shape.inputs)
        steps += vectors * (self._output_step(m) * shape.outputs)
        values = points * tiles * 4 * (shape.inputs + shape.outputs)
        speed = self._speed(values / groups)
        # Filters are prefetched behind the arithmetic, but not entirely for free.
        product = max(compute, stream) + 0.3 * min(compute, stream)
        made = 0.0 if shape.constant else self._filters(m, shape.inputs * shape.outputs)
        return product + made + steps + 2 * values / speed + 2000 * groups

    def _filters(self, m: int, count: int) -> float:
        """Cycles to transform ``count`` filters, each written and read again."""
        step = 150.0 if m == 4 else 60.0
        bytes_ = (m + 2) ** 2 * count * 4
        vectors = count / self.machine.lanes(32) * max(1, 2 / self.machine.fmas)
        return vectors * step + 2 * bytes_ / self._speed(bytes_)

    def _imbalance(self, shape: Shape, choice: Choice, apart: bool) -> float:
        """Time of the thread with the most blocks relative to an even distribution."""
        if choice.blocks == 1 and not apart:
            return 1.0
        groups = shape.images * choice.blocks
        threads = self.machine.threads
        return -(-groups // threads) * threads / groups

    def _speed(self, bytes_: float) -> float:
        """Bytes per cycle of intermediate values, written and read again."""
        machine = self.machine
        if bytes_ <= machine.l2_bytes:
            return machine.l2_bandwidth
        return machine.l3_bandwidth if bytes_ <= self._shared else machine.memory_bandwidth

    def _streaming(self, bytes_: float) -> float:
        """Bytes per cycle of filters, which stream through all caches."""
        machine = self.machine
        return machine.memory_bandwidth if bytes_ > self._shared else machine.l3_bandwidth / 2

    @property
    def _shared(self) -> int:
        """This convolution's share of the L3 cache."""
        return self.machine.l3_bytes // 2

    def _input_step(self, m: int) -> float:
        """Cycles to transform one vector of channels of a tile of inputs; measured with two
        pipes."""
        return 110.0 if m == 4 else 32.0

    def _output_step(self, m: int) -> float:
        """Cycles to transform one vector of channels back to outputs; measured."""
        return 75.0 if m == 4 else 24.0

    def _choices(self, shape: Shape, apart: bool, sizes: Sequence[int]) -> Iterator[Choice]:
        for m in sizes:
            rows = -(-shape.height // m)
            if not apart or self._fits(shape, m, rows):
                yield Choice(m, 1)
            if shape.height % m == 0:
                for blocks in range(2, rows + 1):
                    if rows % blocks == 0 and self._fits(shape, m, rows // blocks):
                        yield Choice(m, blocks)

    def _fits(self, shape: Shape, m: int, rows: int) -> bool:
        """Whether a block's values fit on a thread's stack."""
        tiles = rows * -(-shape.width // m)
        return (m + 2) ** 2 * tiles * 4 * (
            shape.inputs + shape.outputs
        ) <= 2 * self.machine.l2_bytes
