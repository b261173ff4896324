"""Bounds of rounding errors against norms and formulas of the literature, and against errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from kernel_runs import native, run_scheduled
from machines import chosen_cpu

from modelcc.ir.builder import GraphBuilder
from modelcc.ir.tensor import Kernel, TensorProgram
from modelcc.ir.types import F32, Array, Layout, TensorType, blocked
from modelcc.ops.conv import Conv
from modelcc.ops.matmul import MatMul
from modelcc.passes.tensor.from_graph import lower_graph
from modelcc.passes.tensor.fuse import FuseKernels
from modelcc.passes.tensor.rounding import (
    Rounded,
    rounded,
    strassen_rounding,
    sum_of_products,
    winograd_rounding,
)
from modelcc.passes.tensor.winograd_transforms import (
    filter_matrix,
    transform_input,
    transform_output,
)
from modelcc.targets.cpu.passes.strassen import Strassen
from modelcc.targets.cpu.passes.strassen_cost import Split, StrassenCost
from modelcc.targets.cpu.passes.winograd import Winograd
from modelcc.targets.cpu.passes.winograd_cost import Choice, Shape, WinogradCost
from modelcc.targets.cpu.schedule import schedule_program

ROUNDOFF = 2.0**-24
PESSIMISM = 6
"""How many times the errors of normally distributed values may be below what is printed."""


@dataclass(frozen=True)
class AlwaysWinograd(WinogradCost):
    choice: Choice = field(default=Choice(4, 1))

    def choose(self, shape: Shape, apart: bool = False) -> Choice | None:
        return self.choice


@dataclass(frozen=True)
class AlwaysStrassen(StrassenCost):
    def strassen(self, split: Split, others: int, n: int, k: int) -> float:
        return 0.0


@dataclass(frozen=True)
class Subject:
    """A program computed plainly and otherwise, on ``shape``; and what it says in f64.

    ``bound`` is ``n * sum(max|x| * max|w|)`` of an input.
    """

    plain: TensorProgram
    other: TensorProgram
    shape: tuple[int, ...]
    exact: Callable[[Array], Array]
    bound: Callable[[Array], float]

    @property
    def rounding(self) -> float:
        """What the kernel of the results says; the others are plain sums."""
        *others, last = (i for i in self.other.items if isinstance(i, Kernel))
        assert {kernel.rounding for kernel in others} == {1.0}
        return last.rounding

    def errors(self, x: Array) -> tuple[Array, Array]:
        """Errors of the two on ``x``."""
        wanted = self.exact(x.astype(np.float64))
        return errors(self.plain, x, wanted), errors(self.other, x, wanted)


def errors(program: TensorProgram, x: Array, wanted: Array) -> Array:
    ready = schedule_program(program, chosen_cpu())
    found = run_scheduled(ready, native(ready), {"x": x}, {})[program.outputs[0]]
    return np.abs(found.astype(np.float64) - wanted)


def convolution(m: int, inputs: int) -> Subject:
    """16 channels of 3×3 windows over ``inputs``, on 12 × 12 pixels."""
    w = np.random.default_rng(0).standard_normal((16, inputs, 3, 3)).astype(np.float32)
    shape = (1, inputs, 12, 12)
    make = GraphBuilder()
    x = make.input("x", TensorType(shape, F32))
    y = make.emit(Conv((1, 1), (1, 1), (1, 1), (1, 1), 1), x, make.constant(w))
    program = FuseKernels()(lower_graph(make.build([y])))
    parts = blocked(4, 1, 16).parts
    border = Layout(parts, ((0, 0), (0, 0), (1, 1), (1, 1)))
    layouts = {"x": border, y: Layout(parts, ((0, 0),) * 4)}
    types = {n: t.with_layout(layouts[n]) if n in layouts else t for n, t in program.types.items()}
    plain = replace(program, types=types)

    def exact(x: Array) -> Array:
        padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
        return np.einsum("nchwij,ocij->nohw", windows, w.astype(np.float64), optimize=True)

    def bound(x: Array) -> float:
        most = np.abs(x).max((0, 2, 3)) * np.abs(w).max((0, 2, 3)).astype(np.float64)
        return float(9 * inputs * 9 * most.sum())

    other = Winograd(AlwaysWinograd(choice=Choice(m, 1)))(plain)
    return Subject(plain, other, shape, exact, bound)


def product(summed: int) -> Subject:
    """128 rows by 192 columns."""
    w = np.random.default_rng(0).standard_normal((summed, 192)).astype(np.float32)
    make = GraphBuilder()
    x = make.input("x", TensorType((128, summed), F32))
    plain = FuseKernels()(lower_graph(make.build([make.emit(MatMul(), x, make.constant(w))])))
    wide = w.astype(np.float64)

    def bound(x: Array) -> float:
        halves = (slice(summed // 2), slice(summed // 2, None))
        # Quadrants are added, so what meets in a product is the greatest of both halves.
        most = max(float(np.abs(x[:, h]).max()) for h in halves) * float(np.abs(wide).max())
        return summed * summed * most

    other = Strassen(AlwaysStrassen())(plain)
    return Subject(plain, other, (128, summed), lambda x: x @ wide, bound)


SUBJECTS: dict[str, Callable[[], Subject]] = {
    "F(2x2), 16 channels": lambda: convolution(2, 16),
    "F(2x2), 256 channels": lambda: convolution(2, 256),
    "F(4x4), 16 channels": lambda: convolution(4, 16),
    "F(4x4), 256 channels": lambda: convolution(4, 256),
    "Strassen, 64 summands": lambda: product(64),
    "Strassen, 768 summands": lambda: product(768),
}


def dense(shape: tuple[int, ...]) -> Iterator[tuple[str, Array]]:
    """Values of one distribution, or scaled by ten thousand and less, by channels and singly."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal(shape)
    channels = shape[1]
    scales = 10.0 ** rng.uniform(-4, 4, (1, channels) + (1,) * (len(shape) - 2))
    far = x.copy()
    far.flat[rng.integers(0, x.size, 3)] = 1e4
    yield "normal", x
    yield "after ReLU", np.maximum(x, 0)
    yield "positive", rng.random(shape)
    yield "far from zero", x + 100
    yield "channels scaled", x * scales
    yield "elements scaled", x * 10.0 ** rng.uniform(-4, 4, shape)
    yield "scales along rows", x * 10.0 ** np.linspace(-4, 4, shape[-1])
    yield "outliers", far


def sparse(shape: tuple[int, ...]) -> Iterator[tuple[str, Array]]:
    """Values of which direct sums see few."""
    x = np.random.default_rng(2).standard_normal(shape)
    one, line = np.zeros(shape), np.zeros(shape)
    one[..., shape[-1] // 2] = x[..., 0]
    line[..., 3, 3] = x[..., 3, 3]
    yield "one column", one
    yield "one pixel", line


@pytest.mark.parametrize("name", SUBJECTS)
def test_errors_are_below_what_is_printed(name: str) -> None:
    """Compared with those of direct sums, and with the bound of these, whatever the scales."""
    subject = SUBJECTS[name]()
    growth = subject.rounding
    assert growth != 1.0
    for kind, x in (*dense(subject.shape), *sparse(subject.shape)):
        data = x.astype(np.float32)
        plain, other = subject.errors(data)
        assert other.max() <= growth * ROUNDOFF * subject.bound(data), kind
        if kind in dict(dense(subject.shape)):
            assert other.max() <= growth * plain.max(), kind
        if kind == "normal":
            assert growth <= PESSIMISM * np.sqrt((other**2).mean() / (plain**2).mean())


@pytest.mark.parametrize("m", [2, 4])
def test_many_channels_leave_the_norms_of_the_matrices(m: int) -> None:
    """The first term of the bounds of Barabasz et al., with rows of A, B and G by unit vectors."""
    unit = [[float(i == j) for i in range(m + 2)] for j in range(m + 2)]
    b = np.array([transform_input(m, line) for line in unit]).T
    a = np.array([transform_output(m, line) for line in unit]).T
    g = np.array(filter_matrix(m))
    line = np.abs(a) @ (np.abs(b).sum(1) * np.abs(g).sum(1))
    wanted = line.max() ** 2 / 81
    assert wanted <= winograd_rounding(m, 1 << 20) <= wanted + 0.011
    assert winograd_rounding(m, 16) > winograd_rounding(m, 64) > wanted


@pytest.mark.parametrize("summed", [32, 64, 768, 3072])
def test_a_step_of_strassen_has_highams_factor(summed: int) -> None:
    """18 quarters of n²: each step of Winograd's form has 18 times the error of half the size."""
    assert 18 / 4 <= strassen_rounding(summed) <= 18 / 4 + 64 / summed + 0.01


def test_errors_go_through_sums_and_products() -> None:
    x = Rounded(2.0, 3.0)
    assert x + Rounded() == Rounded(3.0, 6.0)
    assert x - Rounded() == x + Rounded()
    assert x * -0.5 == Rounded(1.0, 2.5)
    assert rounded(1.0, x, Rounded(3.0, 1.0)) == Rounded(1.0, 5.0)
    assert sum_of_products(10, x, Rounded()) == Rounded(20.0, 30.0 + 200.0)
