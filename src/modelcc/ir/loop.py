"""Loop level: scheduled loop nests over flat buffers, with explicit vectors and registers.

Every expression has a dtype and a number of ``lanes`` (1: scalar).  Addresses are element offsets
of the integer algebra over loop variables, bound index symbols and the function's size parameters.
The interpreter in :mod:`modelcc.ir.loop_interpreter` defines the semantics; emitters print.

Example, 16 lanes at a time with a masked tail::

    func @relu(%x: f32[n], %y: mut f32[n]; n) {
      parallel i in 0 .. n step 16 {
        let %v = load %x[i] x16 mask(n - i)
        store %y[i] mask(n - i) = max(%v, f32x16(0.0))
      }
    }

An accelerator runs groups of threads (CTAs, workgroups) with shared memory and barriers.  Halves of
64 elements each, added::

    func @halves(%x: f32[64*n], %y: mut f32[32*n]; n) {
      grid g in 0 .. n {
        shared %part: f32[64]
        thread t in 0 .. 64 {
          store %part[t] = load %x[64*g + t]
          barrier
          if predicate(t < 32) { store %y[32*g + t] = add(load %part[t], load %part[t + 32]) }
        }
      }
    }
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from modelcc.ir.argument import Argument
from modelcc.ir.condition import Condition
from modelcc.ir.copies import Barrier, Comment, Exchange, Prefetch
from modelcc.ir.index import Index
from modelcc.ir.tiles import Copying
from modelcc.ir.types import BOOL, DType

Space = Literal["global", "shared", "local", "warp", "tile", "arrivals"]
LoopKind = Literal["serial", "parallel", "unrolled", "grid", "thread"]


@dataclass(frozen=True)
class Buffer:
    """Flat memory of ``size`` elements.  ``global`` is a parameter; an Alloc makes memory that is
    ``shared`` by the threads of a group, ``local`` (private to a thread), of a ``warp``
    (distributed over the threads of an innermost thread loop in the machine's own way; a thread
    accesses its own elements), or ``tile`` and ``arrivals`` (:mod:`modelcc.ir.tiles`).  It is
    aligned to ``align`` bytes, and may alias others (``over``; :mod:`modelcc.ir.shared_layout`)."""

    name: str
    dtype: DType
    size: Index
    space: Space = "global"
    align: int = 64
    over: bool = False


@dataclass(frozen=True)
class Const:
    """A constant, the same in all lanes."""

    value: float | int | bool
    dtype: DType
    lanes: int = 1


@dataclass(frozen=True)
class Var:
    """Value of a ``Let`` or current value of a register."""

    name: str
    dtype: DType
    lanes: int = 1


@dataclass(frozen=True)
class IndexOf:
    """An index expression as a number; lane l adds ``l * step``."""

    index: Index
    dtype: DType
    lanes: int = 1
    step: int = 0


@dataclass(frozen=True)
class Load:
    """Lane l is ``buffer[offset + l * stride]``; lanes ``>= active`` (None: all are) are not read
    and give 0."""

    buffer: str
    offset: Index
    dtype: DType
    lanes: int = 1
    stride: Index = 1
    active: Index | None = None


@dataclass(frozen=True)
class VectorGather:
    """Lane l is ``buffer[offset + offsets[l]]``; inactive lanes are not read and give 0."""

    buffer: str
    offset: Index
    offsets: Expr
    dtype: DType
    active: Index | None = None

    @property
    def lanes(self) -> int:
        return self.offsets.lanes


@dataclass(frozen=True)
class ScalarCall:
    """``function`` of :data:`modelcc.ir.scalar.FUNCTIONS`, lane by lane."""

    function: str
    args: tuple[Expr, ...]
    dtype: DType
    lanes: int = 1


@dataclass(frozen=True)
class MulAdd:
    """``a * b + c``, fused to one rounding where the target has the instruction."""

    a: Expr
    b: Expr
    c: Expr

    @property
    def dtype(self) -> DType:
        return self.c.dtype

    @property
    def lanes(self) -> int:
        return self.c.lanes


@dataclass(frozen=True)
class InstructionOperand:
    """A vector operand of an instruction: ``each`` elements per lane of its result."""

    name: str
    dtype: DType
    each: int = 1


@dataclass(frozen=True)
class Instruction:
    """Semantics of an instruction: ``meaning`` is lane ``l`` of the result, a scalar expression
    that reads operands as buffers (:mod:`modelcc.ir.instructions`).  Kernels have to opt in to one
    that is not ``exact``."""

    name: str
    operands: tuple[InstructionOperand, ...]
    meaning: Expr = field(hash=False)
    exact: bool = True

    @property
    def dtype(self) -> DType:
        return self.meaning.dtype


@dataclass(frozen=True)
class Intrinsic:
    """An instruction's result; an operand with a single lane's elements is broadcast."""

    instruction: Instruction
    args: tuple[Expr, ...]

    @property
    def dtype(self) -> DType:
        return self.instruction.dtype

    @property
    def lanes(self) -> int:
        shapes = zip(self.args, self.instruction.operands, strict=False)
        return max((arg.lanes // operand.each for arg, operand in shapes), default=0)


@dataclass(frozen=True)
class Select:
    """``then`` where ``condition`` (bool, same lanes) else ``other``, lane by lane."""

    condition: Expr
    then: Expr
    other: Expr

    @property
    def dtype(self) -> DType:
        return self.then.dtype

    @property
    def lanes(self) -> int:
        return self.then.lanes


@dataclass(frozen=True)
class Convert:
    """Value conversion, lane by lane (float to integer truncates)."""

    value: Expr
    dtype: DType

    @property
    def lanes(self) -> int:
        return self.value.lanes


@dataclass(frozen=True)
class Bitcast:
    """The same bits as another dtype of the same width (elementary functions need it)."""

    value: Expr
    dtype: DType

    @property
    def lanes(self) -> int:
        return self.value.lanes


@dataclass(frozen=True)
class Splat:
    """A scalar in every lane."""

    value: Expr
    lanes: int

    @property
    def dtype(self) -> DType:
        return self.value.dtype


@dataclass(frozen=True)
class Shuffle:
    """Lane l is lane ``places[l]`` of the concatenation of ``a`` and ``b``, of equal lanes."""

    a: Expr
    b: Expr
    places: tuple[int, ...]

    @property
    def dtype(self) -> DType:
        return self.a.dtype

    @property
    def lanes(self) -> int:
        return len(self.places)


@dataclass(frozen=True)
class Reduce:
    """All lanes combined to a scalar by a binary function, in unspecified order."""

    function: str
    value: Expr

    @property
    def dtype(self) -> DType:
        return self.value.dtype

    @property
    def lanes(self) -> int:
        return 1


@dataclass(frozen=True)
class Predicate:
    """Index conditions as a scalar bool: all of them hold."""

    conditions: tuple[Condition, ...]
    dtype: DType = BOOL
    lanes: int = 1


Expr: TypeAlias = (
    Const | Var | IndexOf | Load | VectorGather | ScalarCall | MulAdd | Intrinsic | Select | Convert
    | Bitcast | Splat | Shuffle | Reduce | Predicate
)  # fmt: skip


@dataclass(frozen=True)
class For:
    """``variable`` runs from ``start`` by ``step`` while below ``stop``.

    ``parallel`` iterations are independent and may run on the thread pool, but only if ``when``
    holds: run-time sizes may be too small for that.  ``unrolled`` asks for full unrolling (constant
    bounds).  With ``part``, only iterations from its first to before its second number run.

    ``grid`` loops run groups, in any order, and ``thread`` loops the threads of a group,
    concurrently: up to three of each, directly nested, the innermost one being the fastest-varying
    dimension.  They run from 0 by 1; grids have extents of the sizes, threads constant ones.
    Accesses of two threads to an element, one of which is a write, are separated by a barrier;
    threads of different groups synchronise by :class:`Arrive` only.
    """

    variable: str
    start: Index
    stop: Index
    body: tuple[Stmt, ...]
    step: int = 1
    kind: LoopKind = "serial"
    when: Condition | None = None
    part: tuple[Index, Index] | None = None


@dataclass(frozen=True)
class While:
    """Runs ``body`` as long as the scalar bool ``condition``, evaluated each time, holds.

    The condition has no calls of elementary functions, which are lowered to statements."""

    condition: Expr
    body: tuple[Stmt, ...]


@dataclass(frozen=True)
class If:
    """``then`` if the scalar bool ``condition`` holds (``rare``: unlikely), else ``other``."""

    condition: Expr
    then: tuple[Stmt, ...]
    other: tuple[Stmt, ...] = ()
    rare: bool = False


@dataclass(frozen=True)
class Let:
    """Names a value; visible to the end of the enclosing block."""

    name: str
    value: Expr


@dataclass(frozen=True)
class BindIndex:
    """Names a scalar integer as an index symbol; visible to the end of the enclosing block."""

    symbol: str
    value: Expr


@dataclass(frozen=True)
class Check:
    """Ends the function, in this thread, unless ``0 <= value < extent``; the run ends after it.

    ``value`` is i64; lanes ``>= active`` are ignored.  ``number`` identifies a function's checks.
    A thread that is only ``noting`` continues, harmlessly, as others wait for it at barriers.
    """

    value: Expr
    extent: Index
    number: int = 0
    active: Index | None = None
    noting: bool = False


@dataclass(frozen=True)
class Register:
    """Declares a mutable register with an initial value; read by ``Var``, set by ``Assign``."""

    name: str
    value: Expr


@dataclass(frozen=True)
class Assign:
    """Sets a register."""

    name: str
    value: Expr


@dataclass(frozen=True)
class Store:
    """``buffer[offset + l * stride] = value lane l``; lanes ``>= active`` are not written."""

    buffer: str
    offset: Index
    value: Expr
    stride: Index = 1
    active: Index | None = None


@dataclass(frozen=True)
class VectorScatter:
    """``buffer[offset + offsets[l]] = value lane l``; lanes ``>= active`` are not written."""

    buffer: str
    offset: Index
    offsets: Expr
    value: Expr
    active: Index | None = None


@dataclass(frozen=True)
class Alloc:
    """A buffer of constant size, visible to the end of the enclosing block; a ``shared`` one is in
    the innermost grid loop, before the threads."""

    buffer: Buffer


@dataclass(frozen=True)
class Arrive:
    """All threads of a group arrive at ``counters[slot]``; the last of ``count`` groups runs
    ``body`` and sees all that the others wrote, or saw, before they arrived.  Counters are i32, 0
    before the first group and again after the last one; nothing else accesses them."""

    counters: str
    slot: Index
    count: Index
    body: tuple[Stmt, ...]


@dataclass(frozen=True)
class TakeTurns:
    """Warpgroups of a group run ``first`` and ``rest`` in turns, each when the previous one has
    left.  One thread of the last, when all have come, runs ``copies`` in between: these may
    overwrite what warpgroups have read, and waited for, before they came."""

    first: tuple[Stmt, ...]
    copies: tuple[Stmt, ...]
    rest: tuple[Stmt, ...]


@dataclass(frozen=True)
class ParallelCall:
    """Runs ``outlined`` for all of 0 … ``count - 1``, which are independent: on the thread pool,
    each thread for a range of them, if ``when`` holds, else all at once.  The last two sizes of
    ``outlined`` are the first of its range and the end of it; its buffers, values and other sizes
    are those of the same names here."""

    outlined: Function
    count: Index
    when: Condition | None = None


@dataclass(frozen=True)
class RoutineCall:
    """Calls ``routine``, which has no values or checks and is identified by its name, on parts of
    buffers; those that it writes do not overlap others.  Processors may have code of their own for
    it (:mod:`modelcc.targets.isa`).  In groups, all threads of an innermost thread loop execute it
    together, or asynchronously (``beside``): its operands must not change until they wait."""

    routine: Routine
    arguments: tuple[Argument, ...]
    sizes: tuple[Index, ...] = ()
    beside: bool = False


Stmt: TypeAlias = (
    For | While | If | Let | BindIndex | Check | Register | Assign | Store | VectorScatter | Alloc
    | Barrier | Arrive | TakeTurns | Exchange | Copying | Prefetch | ParallelCall
    | RoutineCall | Comment
)  # fmt: skip


@dataclass(frozen=True)
class Parameter:
    """A buffer parameter; ``mutable`` ones may be written, ``constant`` ones are never written.
    ``prefetched`` bytes are worth prefetching to a cache.  Buffers do not overlap, except that
    ``shared`` ones may alias each other: an element of one is read only before it is written in
    another."""

    buffer: Buffer
    mutable: bool = False
    shared: bool = False
    constant: bool = False
    prefetched: int = 0


@dataclass(frozen=True)
class Function:
    """A kernel: buffers, then sizes (i64), then statements.  At most one parallel loop or one nest
    of grid loops, outermost.  ``source`` names the user's nodes it computes.  ``values`` come
    between buffers and sizes; only a function that a :class:`ParallelCall` calls has any.
    ``resident`` groups are expected on an SM at once (0: unknown); ``early``: it leaves room for
    groups of the next kernel."""

    name: str
    parameters: tuple[Parameter, ...]
    sizes: tuple[str, ...]
    body: tuple[Stmt, ...]
    source: tuple[str, ...] = ()
    values: tuple[Var, ...] = ()
    resident: int = 0
    early: bool = False


Routine: TypeAlias = Function
