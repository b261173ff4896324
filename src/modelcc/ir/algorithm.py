"""Building a loop function statement by statement, for ops without a structured computation.

    at = AlgorithmBuilder("Count", capacity)
    x, count = at.buffer("x", F32, n), at.buffer("count", I64, 1, mutable=True)
    total = at.register(integer(0))
    with at.loop(0, n) as i, at.when(call("ne", at.load(x, i), number(0.0, F32))):
        at.assign(total, call("add", total, integer(1)))
    at.store(count, 0, total)
    function = at.function()

Expressions are those of :mod:`modelcc.ir.loop`.  A run-time number becomes an index by
:meth:`AlgorithmBuilder.index`.  The target gives vector width and parallelism:
:attr:`AlgorithmBuilder.capacity`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from modelcc.ir.capacity import Capacity
from modelcc.ir.compute import Operand
from modelcc.ir.condition import Comparison, Condition
from modelcc.ir.index import Index, Sym, product, symbols
from modelcc.ir.loop import (
    Alloc,
    Assign,
    Barrier,
    BindIndex,
    Buffer,
    Const,
    Convert,
    Expr,
    For,
    Function,
    If,
    IndexOf,
    Let,
    Load,
    LoopKind,
    Parameter,
    Predicate,
    Reduce,
    Register,
    ScalarCall,
    Splat,
    Stmt,
    Store,
    Var,
    While,
)
from modelcc.ir.loop_traversal import (
    indices,
    statement_expressions,
    statement_indices,
    statements,
    walk,
)
from modelcc.ir.scalar import FUNCTIONS
from modelcc.ir.types import BOOL, I64, DType


def number(value: float | int | bool, dtype: DType, lanes: int = 1) -> Const:
    """A constant, in each of ``lanes``."""
    if dtype.is_float:
        return Const(float(value), dtype, lanes)
    return Const(bool(value) if dtype == BOOL else int(value), dtype, lanes)


def integer(value: int) -> Const:
    """A constant i64."""
    return Const(value, I64)


def call(function: str, *args: Expr) -> ScalarCall:
    """``function`` of :data:`modelcc.ir.scalar.FUNCTIONS` on values of equal lane counts."""
    dtype = FUNCTIONS[function].result_of(args[0].dtype)
    return ScalarCall(function, args, dtype, args[0].lanes)


def add(a: Expr, b: Expr | int) -> ScalarCall:
    """The sum of two numbers of one type."""
    return call("add", a, number(b, a.dtype, a.lanes) if isinstance(b, int) else b)


def splat(value: Expr, lanes: int) -> Expr:
    """A number in each of ``lanes``."""
    return value if lanes == 1 else Splat(value, lanes)


def reduce(function: str, value: Expr) -> Expr:
    """The lanes of ``value`` combined; itself if there is one."""
    return value if value.lanes == 1 else Reduce(function, value)


def predicate(left: Index, comparison: Comparison, right: Index) -> Predicate:
    """A comparison of indices as a bool."""
    return Predicate((Condition(left, comparison, right),))


def index_number(index: Index, dtype: DType = I64) -> IndexOf:
    """An index expression as a number."""
    return IndexOf(index, dtype)


def convert(value: Expr, dtype: DType) -> Expr:
    """Value conversion; the identity if the dtype is already right."""
    return value if value.dtype == dtype else Convert(value, dtype)


class AlgorithmBuilder:
    """Collects the statements of one loop function; every name it makes is fresh."""

    def __init__(self, name: str, capacity: Capacity) -> None:
        self.name = name
        self.capacity = capacity
        self._parameters: list[Parameter] = []
        self._blocks: list[list[Stmt]] = [[]]
        self._names = 0
        self.scratch_buffers: list[Buffer] = []

    @property
    def lanes(self) -> int:
        """Elements per vector."""
        return self.capacity.lanes

    def function(self, source: Sequence[str] = ()) -> Function:
        """The finished function; its sizes are the symbols that no statement binds, sorted."""
        body = tuple(self._blocks[0])
        used: set[str] = set()
        bound: set[str] = set()
        for parameter in self._parameters:
            used |= symbols(parameter.buffer.size)
        for s in statements(body):
            used |= _symbols_of(s)
            bound |= {s.variable} if isinstance(s, For) else set()
            bound |= {s.symbol} if isinstance(s, BindIndex) else set()
        sizes = tuple(sorted(used - bound))
        return Function(self.name, tuple(self._parameters), sizes, body, tuple(source))

    def buffer(self, name: str, dtype: DType, size: Index, mutable: bool = False) -> Buffer:
        """The next parameter."""
        buffer = Buffer(name, dtype, size)
        self._parameters.append(Parameter(buffer, mutable))
        return buffer

    def scratch(self, dtype: DType, size: Index) -> Buffer:
        """Scratch memory of the algorithm, initially undefined."""
        buffer = self.buffer(f"s{len(self.scratch_buffers)}", dtype, size, mutable=True)
        self.scratch_buffers.append(buffer)
        return buffer

    # --- values

    def load(
        self,
        buffer: Buffer | Operand,
        offset: Index,
        lanes: int = 1,
        stride: Index = 1,
        active: Index | None = None,
    ) -> Expr:
        """Elements ``stride`` apart, the first ``active`` of them; 0 for inactive lanes, which are
        not read."""
        if _elements(buffer) == 0:
            return number(0, buffer.dtype, lanes)
        return Load(buffer.name, offset, buffer.dtype, lanes, stride if lanes > 1 else 1, active)

    def let(self, value: Expr) -> Var:
        """Names a value."""
        name = self._fresh("v")
        self._add(Let(name, value))
        return Var(name, value.dtype, value.lanes)

    def register(self, value: Expr) -> Var:
        """A variable with an initial value."""
        name = self._fresh("r")
        self._add(Register(name, value))
        return Var(name, value.dtype, value.lanes)

    def assign(self, register: Var, value: Expr) -> None:
        """Sets a variable."""
        self._add(Assign(register.name, value))

    def index(self, value: Expr) -> Sym:
        """A run-time integer as an index symbol."""
        name = self._fresh("x")
        self._add(BindIndex(name, value))
        return Sym(name)

    def store(
        self,
        buffer: Buffer | Operand,
        offset: Index,
        value: Expr,
        stride: Index = 1,
        active: Index | None = None,
    ) -> None:
        """Writes an element, or those ``stride`` apart from its first ``active`` lanes."""
        if _elements(buffer) == 0:
            return
        self._add(Store(buffer.name, offset, value, stride if value.lanes > 1 else 1, active))

    def copy(
        self,
        target: Buffer | Operand,
        to: Index,
        source: Buffer | Operand,
        start: Index,
        count: Index,
    ) -> None:
        """``count`` neighbouring elements from ``source`` to ``target``."""
        for offset, lanes in self.vectors(count):
            self.store(target, to + offset, self.load(source, start + offset, lanes))

    def fill(self, target: Buffer | Operand, start: Index, count: Index, value: Const) -> None:
        """``count`` neighbouring elements of ``target`` become ``value``."""
        for offset, lanes in self.vectors(count):
            self.store(target, start + offset, replace(value, lanes=lanes))

    def vectors(self, count: Index) -> Iterator[tuple[Index, int]]:
        """Offsets in ``count`` elements and the number of lanes there, within loops over them.

        The caller's body is emitted for whole vectors, then for the remaining elements one by one.
        """
        lanes = self.lanes
        whole = count // lanes
        if whole != 0:
            with self.loop(0, whole) as block:
                yield block * lanes, lanes
        if whole * lanes != count:
            with self.loop(whole * lanes, count) as i:
                yield i, 1

    # --- blocks

    @contextmanager
    def loop(
        self, start: Index, stop: Index, kind: LoopKind = "serial", when: Condition | None = None
    ) -> Generator[Sym]:
        """A loop over ``start … stop-1``, omitted if that is statically empty; its variable."""
        name = self._fresh("i")
        with self._block() as body:
            yield Sym(name)
        extent = stop - start
        if not isinstance(extent, int) or extent > 0:
            self._add(For(name, start, stop, tuple(body), kind=kind, when=when))

    @contextmanager
    def shared_loop(self, stop: Index, work: Index) -> Generator[Sym]:
        """A loop over ``stop`` chunks of work on ``work`` elements in total; parallel where that is
        worth it."""
        little = stop == 1 or self.capacity.is_little(work)
        known = little or isinstance(work, int)
        when = None if known else Condition(work, ">=", self.capacity.parallel_from)
        with self.loop(0, stop, "serial" if little else "parallel", when) as piece:
            yield piece

    @contextmanager
    def each(self, shape: Sequence[Index]) -> Generator[tuple[Sym, tuple[Index, ...]]]:
        """A loop, possibly parallel, over all elements of a row-major tensor: the element, and its
        index along each axis."""
        with self.loop(0, product(shape), "parallel") as element:
            rest: Index = element
            places: list[Index] = []
            for extent in (extent or 1 for extent in reversed(shape[1:])):
                places.append(rest % extent)
                rest = rest // extent
            yield element, (rest, *reversed(places)) if shape else ()

    @contextmanager
    def groups(
        self, count: Index, threads: Sequence[int], *shared: tuple[DType, int]
    ) -> Generator[tuple[Sym, tuple[Sym, ...], tuple[Buffer, ...]]]:
        """``count`` groups of ``threads``, the last dimension being contiguous: the group, the
        thread, and the group's shared memory, a dtype and a number of elements each."""
        with ExitStack() as around:
            group = around.enter_context(self.loop(0, count, "grid"))
            buffers = [Buffer(self._fresh("h"), dtype, size, "shared") for dtype, size in shared]
            self._blocks[-1] += map(Alloc, buffers)
            thread = [around.enter_context(self.loop(0, n, "thread")) for n in threads]
            yield group, tuple(thread), tuple(buffers)

    def barrier(self) -> None:
        """The threads of a group wait for each other."""
        self._add(Barrier())

    @contextmanager
    def while_(self, condition: Expr) -> Generator[None]:
        """A loop while ``condition``, which reads registers and memory, holds."""
        with self._block() as body:
            yield
        self._add(While(condition, tuple(body)))

    @contextmanager
    def when(self, condition: Expr) -> Generator[None]:
        """Statements executed if ``condition`` holds."""
        with self._block() as body:
            yield
        self._add(If(condition, tuple(body)))

    @contextmanager
    def otherwise(self) -> Generator[None]:
        """Statements executed if the condition of the directly preceding ``when`` does not hold."""
        before = self._blocks[-1].pop()
        if not isinstance(before, If) or before.other:
            raise ValueError("there is no condition before this")
        with self._block() as body:
            yield
        self._add(If(before.condition, before.then, tuple(body)))

    @contextmanager
    def _block(self) -> Generator[list[Stmt]]:
        body: list[Stmt] = []
        self._blocks.append(body)
        try:
            yield body
        finally:
            self._blocks.pop()

    def _add(self, statement: Stmt) -> None:
        self._blocks[-1].append(statement)

    def _fresh(self, letter: str) -> str:
        self._names += 1
        return f"{letter}{self._names}"


def _elements(buffer: Buffer | Operand) -> Index:
    return buffer.size if isinstance(buffer, Buffer) else buffer.type.elements


def _symbols_of(s: Stmt) -> frozenset[str]:
    found = {name for index in statement_indices(s) for name in symbols(index)}
    for outer in statement_expressions(s):
        found |= {n for e in walk(outer) for index in indices(e) for n in symbols(index)}
    return frozenset(found)
