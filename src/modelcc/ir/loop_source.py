"""Python source of a loop function, which the reference interpreter runs.

``func @relu`` of :mod:`modelcc.ir.loop` becomes::

    def relu(B0_x, B1_y, I0_n):
        for I1_i in range(0, I0_n, 16):
            V0_v = load(B0_x, I1_i, 16, 1, (I0_n + -1*I1_i))
            store(B1_y, I1_i, maximum(V0_v, K0), 1, (I0_n + -1*I1_i))

Scalars are NumPy scalars, vectors NumPy arrays of ``lanes`` elements; numbered names cannot clash
with Python's.  The functions it calls are those of :mod:`modelcc.ir.loop_interpreter`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from modelcc.ir.copies import CommitCopies, CopyAsync, Exchange, Prefetch, WaitCopies
from modelcc.ir.index import Index, python_source, substitute, symbols
from modelcc.ir.instructions import vectors
from modelcc.ir.loop import (
    Alloc,
    Arrive,
    Assign,
    Barrier,
    BindIndex,
    Bitcast,
    Buffer,
    Check,
    Comment,
    Const,
    Convert,
    Expr,
    For,
    Function,
    If,
    IndexOf,
    Intrinsic,
    Let,
    Load,
    MulAdd,
    ParallelCall,
    Predicate,
    Reduce,
    Register,
    RoutineCall,
    ScalarCall,
    Select,
    Shuffle,
    Splat,
    Stmt,
    Store,
    TakeTurns,
    Var,
    VectorGather,
    VectorScatter,
    While,
)
from modelcc.ir.loop_traversal import loop_nest, statements
from modelcc.ir.tiles import Copying, CopyTile, ExpectBytes, WaitArrival, WaitRoutines
from modelcc.ir.types import I64, Array, DType, NumpyType

_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "and": "&", "or": "|", "xor": "^",
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
}  # fmt: skip
_PREFIX = {"neg": "-", "not": "~"}


@dataclass(frozen=True)
class Source:
    """``text`` defines a function called ``run``; ``constants`` are the globals it needs; sources
    among these stand for the functions that they define."""

    text: str
    constants: dict[str, Global]


Global: TypeAlias = Array | NumpyType | Source


def python_function(function: Function) -> Source:
    """The source of ``function``: its buffers (flat arrays), then its sizes, as parameters."""
    writer = _Writer([parameter.buffer.name for parameter in function.parameters])
    buffers = [writer.bound("B", p.buffer.name) for p in function.parameters]
    sizes = [writer.bound("I", name) for name in function.sizes]
    writer.lines.append(f"def run({', '.join(buffers + sizes)}):")
    writer.block(function.body, 1)
    lines = (*writer.meanings.values(), *writer.lines)
    return Source("\n".join(lines) + "\n", writer.constants)


def _in_group(routine: Function) -> Source:
    """The source of ``routine`` for groups: on watched memory, each buffer starting at an element
    of another one."""
    writer = _Writer([], access="watch.", parts=True)
    names = (p.buffer.name for p in routine.parameters)
    places = [writer.bound(kind, name) for name in names for kind in ("B", "O")]
    sizes = [writer.bound("I", name) for name in routine.sizes]
    writer.lines.append(f"def run({', '.join(('watch', *places, *sizes))}):")
    writer.block(routine.body, 1)
    return Source("\n".join((*writer.meanings.values(), *writer.lines)) + "\n", writer.constants)


@dataclass
class _Writer:
    parameters: list[str]
    lines: list[str] = field(default_factory=list[str])
    constants: dict[str, Global] = field(default_factory=dict[str, "Global"])
    meanings: dict[str, str] = field(default_factory=dict[str, str])
    names: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])
    barriers: int = 0
    access: str = ""
    """Prefix of functions that access memory."""
    lane: str = ""
    """The index of the innermost thread loop."""
    parts: bool = False
    """Whether buffers are parts of others, whose first element has a name."""

    def bound(self, kind: str, name: str) -> str:
        """The Python name of a buffer (B), instruction (F), routine of groups (G), index symbol
        (I), first element (O), routine (R) or value (V)."""
        known = self.names.get((kind, name))
        if known is None:
            readable = re.sub(r"\W", "_", name, flags=re.ASCII)
            known = self.names[kind, name] = f"{kind}{len(self.names)}_{readable}"
        return known

    def constant(self, value: Array | NumpyType) -> str:
        """The name of a global that holds ``value``."""
        name = f"K{len(self.constants)}"
        self.constants[name] = value
        return name

    def block(self, body: Sequence[Stmt], depth: int) -> None:
        """A list of statements, indented by ``depth``."""
        before = len(self.lines)
        for s in body:
            self._statement(s, depth)
        if len(self.lines) == before:
            self._line(depth, "pass")

    def _line(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def _statement(self, s: Stmt, depth: int) -> None:
        match s:
            case For(kind="grid"):
                self._grid(s, depth)
            case For(kind="thread"):
                self._threads(s, depth)
            case Barrier():
                self.barriers += 1
                self._line(depth, f"yield {self.barriers}")
            case Arrive():
                self._arrive(s, depth)
            case TakeTurns():
                self._turns(s, depth)
            case Exchange():
                self._exchange(s, depth)
            case For():
                self._loop(s, depth)
            case If():
                self._line(depth, f"if {self._truth(s.condition)}:")
                self.block(s.then, depth + 1)
                if s.other:
                    self._line(depth, "else:")
                    self.block(s.other, depth + 1)
            case While():
                self._line(depth, f"while {self._truth(s.condition)}:")
                self.block(s.body, depth + 1)
            case Let() | Register() | Assign():
                name = self.bound("V", s.name)
                self._line(depth, f"{name} = {self.expression(s.value)}")
            case BindIndex():
                name = self.bound("I", s.symbol)
                self._line(depth, f"{name} = {self._integer(s.value)}")
            case Check():
                value, active = self.expression(s.value), self.index(s.active)
                self._line(depth, f"check({value}, {self.index(s.extent)}, {s.number}, {active})")
            case Alloc():
                if s.buffer.space == "warp":
                    self._gather_warp(depth)
                self._line(depth, self._alloc(s.buffer))
                if self.parts:
                    self._line(depth, f"{self.bound('O', s.buffer.name)} = 0")
            case Store() | VectorScatter():
                self._line(depth, self._store(s))
            case ParallelCall():
                first, last = (self.bound("I", name) for name in s.outlined.sizes[-2:])
                self._line(depth, f"for {first}, {last} in ranges({self.index(s.count)}):")
                self.block(s.outlined.body, depth + 1)
            case RoutineCall() if self.lane:
                self._gather_warp(depth)
                self._line(depth, f"if {self.lane} == 0: {self._call_in_group(s)}")
            case RoutineCall():
                self._line(depth, self._call_routine(s))
            case Prefetch() | Comment():
                pass
            case _:
                if isinstance(s, WaitRoutines):
                    self._gather_warp(depth)
                self._line(depth, self._copying(s))

    def _loop(self, s: For, depth: int) -> None:
        start, stop = s.start, s.stop
        if s.part:
            start, stop = (s.start + number * s.step for number in s.part)
        bounds = f"{self.index(start)}, {self.index(stop)}, {s.step}"
        self._line(depth, f"for {self.bound('I', s.variable)} in range({bounds}):")
        self.block(s.body, depth + 1)

    def _exchange(self, s: Exchange, depth: int) -> None:
        """All threads give before the first takes, and take before the first gives again."""
        name = self.bound("V", s.name)
        self._line(depth, f"watch.give({name})")
        self._gather_warp(depth)
        self._line(depth, f"{name} = watch.take({s.across})")
        self._gather_warp(depth)

    def _arrive(self, s: Arrive, depth: int) -> None:
        """All threads converge here before the first of them counts for the group."""
        self.barriers += 1
        self._line(depth, f"yield {self.barriers}")
        place = self._place(s.counters, s.slot)
        self._line(depth, f"if watch.arrive({place}, {self.index(s.count)}):")
        self.block(s.body, depth + 1)

    def _turns(self, s: TakeTurns, depth: int) -> None:
        """All threads converge here before the first of them copies for all; not a barrier for the
        race detector."""
        self.barriers += 1
        self._line(depth, "watch.hand_on()")
        self._line(depth, f"yield {self.barriers}")
        self._line(depth, "if watch.copies():")
        self.block(s.copies, depth + 1)
        self._line(depth + 1, "watch.copied()")
        self.block((*s.first, *s.rest), depth)

    def _copying(self, s: Copying) -> str:
        match s:
            case CopyAsync():
                to, source = self._place(s.to, s.to_offset), self._place(s.source, s.source_offset)
                return f"watch.copy({to}, {source}, {s.lanes}, {self.index(s.active)})"
            case CommitCopies():
                return "watch.commit()"
            case WaitCopies():
                return f"watch.wait({s.pending})"
            case CopyTile():
                return self._copy_tile(s)
            case ExpectBytes():
                return f"watch.expect({self._place(s.arrivals, s.slot)}, {s.size})"
            case WaitArrival():
                place = self._place(s.arrivals, s.slot)
                return f"watch.wait_arrival({place}, {self.index(s.phase)})"
            case WaitRoutines():
                return f"if {self.lane} == 0: watch.finish({s.pending})"

    def _copy_tile(self, s: CopyTile) -> str:
        at, sizes, strides = (
            f"({', '.join([*map(self.index, given), ''])})" for given in (s.at, s.sizes, s.strides)
        )
        to, source = self._place(s.to, s.to_offset), self.bound("B", s.source)
        box = f"({at}, {sizes}, {strides}, {s.box})"
        arrivals = self._place(s.arrivals, s.slot)
        return f"watch.copy_tile({to}, {source}, {box}, {self.index(s.offset)}, {arrivals})"

    def _gather_warp(self, depth: int) -> None:
        """All threads of a warp converge here before the first of them continues."""
        self.barriers += 1
        self._line(depth, f"yield {-self.barriers}")

    def _call_in_group(self, s: RoutineCall) -> str:
        """A call whose memory accesses are those of the thread."""
        name = self.bound("G", s.routine.name)
        if name not in self.constants:
            self.constants[name] = _in_group(s.routine)
        given = [self._place(argument.buffer, argument.offset) for argument in s.arguments]
        taken = ", ".join((*given, *map(self.index, s.sizes)))
        return f"watch.beside({name}, {taken})" if s.beside else f"{name}(watch, {taken})"

    def _place(self, buffer: str, offset: Index) -> str:
        """The memory of a buffer, and the offset of an element."""
        first = f"{self.bound('O', buffer)} + " if self.parts else ""
        return f"{self.bound('B', buffer)}, {first}{self.index(offset)}"

    def _call_routine(self, s: RoutineCall) -> str:
        """A call, on views with the numbers of elements of the routine's buffers."""
        sizes = dict(zip(s.routine.sizes, s.sizes, strict=True))
        parts: list[str] = []
        for argument, parameter in zip(s.arguments, s.routine.parameters, strict=True):
            buffer, first = self.bound("B", argument.buffer), self.index(argument.offset)
            count = self.index(substitute(parameter.buffer.size, sizes))
            parts.append(f"part({buffer}, {first}, {count})")
        given = (*parts, *map(self.index, s.sizes))
        return f"{self._routine(s.routine)}({', '.join(given)})"

    def _routine(self, routine: Function) -> str:
        """The name of the global function for ``routine``."""
        name = self.bound("R", routine.name)
        if name not in self.constants:
            source = python_function(routine)
            self.constants[name] = source
        return name

    def _grid(self, s: For, depth: int) -> None:
        """Groups, one after the other."""
        loops, body = loop_nest(s)
        buffers = ", ".join(f"{name!r}: {self.bound('B', name)}" for name in self.parameters)
        self._line(depth, f"watch = watching({{{buffers}}})")
        names = [self.bound("I", loop.variable) for loop in loops]
        extents = ", ".join(self.index(loop.stop) for loop in loops)
        self._line(depth, f"for {', '.join([*names, ''])} in groups({extents}):")
        self._line(depth + 1, f"watch.begin_group({self._point(loops)})")
        self.block(body, depth + 1)
        self._line(depth, "watch.end()")

    def _threads(self, s: For, depth: int) -> None:
        """A generator, which yields at barriers."""
        loops, body = loop_nest(s)
        indices = ", ".join(self.bound("I", loop.variable) for loop in loops)
        self._line(depth, f"def thread({indices}):")
        self.access, self.lane = "watch.", self.bound("I", loops[-1].variable)
        self.block(body, depth + 1)
        self.access = self.lane = ""
        if not any(isinstance(inner, Barrier | Arrive | TakeTurns) for inner in statements(body)):
            self._line(depth + 1, "yield from ()")
        extents = ", ".join(f"{loop.variable!r}: {self.index(loop.stop)}" for loop in loops)
        self._line(depth, f"watch.run(thread, {{{extents}}})")

    def _point(self, loops: Sequence[For]) -> str:
        """Names of loop variables and their values."""
        places = (f"{loop.variable!r}: {self.bound('I', loop.variable)}" for loop in loops)
        return f"{{{', '.join(places)}}}"

    def _alloc(self, buffer: Buffer) -> str:
        dtype = self.constant(buffer.dtype.numpy)
        memory = f"undefined({self.index(buffer.size)}, {dtype})"
        if buffer.space == "shared":
            memory = f"watch.share({buffer.name!r}, {memory})"
        if buffer.space == "tile":
            memory = f"watch.tile({buffer.name!r}, {memory})"
        if buffer.space == "arrivals":
            memory = f"watch.arrivals({memory})"
        if buffer.space == "warp":
            memory = f"watch.hold({buffer.name!r}, {self.lane}, {memory})"
        return f"{self.bound('B', buffer.name)} = {memory}"

    def _store(self, s: Store | VectorScatter) -> str:
        place = self._place(s.buffer, s.offset)
        value, active = self.expression(s.value), self.index(s.active)
        if isinstance(s, VectorScatter):
            return f"{self.access}scatter({place}, {self.expression(s.offsets)}, {value}, {active})"
        return f"{self.access}store({place}, {value}, {self.index(s.stride)}, {active})"

    def index(self, e: Index | None) -> str:
        """An index expression."""
        if e is None:
            return "None"
        return python_source(e, {name: self.bound("I", name) for name in sorted(symbols(e))})

    def expression(self, e: Expr) -> str:
        """An expression; vectors are arrays, scalars NumPy scalars."""
        match e:
            case Const():
                return self.constant(_constant(e.value, e.dtype, e.lanes))
            case Var():
                return self.bound("V", e.name)
            case IndexOf():
                return self._index_of(e)
            case Load():
                place = self._place(e.buffer, e.offset)
                lanes = f"{e.lanes}, {self.index(e.stride)}, {self.index(e.active)}"
                return f"{self.access}load({place}, {lanes})"
            case VectorGather():
                place = self._place(e.buffer, e.offset)
                offsets, active = self.expression(e.offsets), self.index(e.active)
                return f"{self.access}gather({place}, {offsets}, {active})"
            case ScalarCall():
                return self._call(e)
            case MulAdd():
                a, b, c = self._operands((e.a, e.b, e.c))
                return f"({a} * {b} + {c})"
            case Shuffle():
                return f"shuffle({self.expression(e.a)}, {self.expression(e.b)}, {e.places})"
            case Intrinsic():
                return f"{self._meaning(e)}({', '.join(map(self.expression, e.args))})"
            case _:
                return self._shaping(e)

    def _meaning(self, e: Intrinsic) -> str:
        """A function of the arguments with the semantics of the instruction."""
        shapes = tuple(arg.lanes for arg in e.args)
        name = f"{self.bound('F', e.instruction.name)}_{'_'.join(map(str, shapes))}"
        if name not in self.meanings:
            args = [
                Var(f".{o.name}", o.dtype, n)
                for o, n in zip(e.instruction.operands, shapes, strict=True)
            ]
            result = self.expression(vectors(Intrinsic(e.instruction, tuple(args))))
            head = f"def {name}({', '.join(map(self.expression, args))}):"
            self.meanings[name] = f"{head}\n    return {result}"
        return name

    def _shaping(self, e: Expr) -> str:
        match e:
            case Select():
                condition = self.expression(e.condition)
                then, other = self.expression(e.then), self.expression(e.other)
                if e.lanes == 1:
                    return f"({then} if {condition} else {other})"
                return f"where({condition}, {then}, {other})"
            case Convert():
                return f"{self.expression(e.value)}.astype({self.constant(e.dtype.numpy)})"
            case Bitcast():
                return f"{self.expression(e.value)}.view({self.constant(e.dtype.numpy)})"
            case Splat():
                dtype = self.constant(e.dtype.numpy)
                value = self.expression(e.value)
                return value if e.lanes == 1 else f"full({e.lanes}, {value}, {dtype})"
            case Reduce():
                value = self.expression(e.value)
                return value if e.value.lanes == 1 else f"reduce_{e.function}({value})"
            case Predicate():
                return f"bool_({self._condition(e)})"
            case _:
                raise TypeError(f"no Python form of {type(e).__name__}")

    def _truth(self, e: Expr) -> str:
        """A Python condition."""
        return self._condition(e) if isinstance(e, Predicate) else self.expression(e)

    def _integer(self, e: Expr) -> str:
        """A Python integer."""
        if isinstance(e, IndexOf) and e.lanes == 1 and e.dtype == I64:
            return self.index(e.index)
        return f"int({self.expression(e)})"

    def _operands(self, args: Sequence[Expr]) -> list[str]:
        """Operands of a NumPy operation, which broadcasts scalars itself."""
        spread = [isinstance(arg, Splat) for arg in args]
        return [
            self.expression(arg.value if isinstance(arg, Splat) and not all(spread) else arg)
            for arg in args
        ]

    def _condition(self, e: Predicate) -> str:
        parts = [f"{self.index(c.left)} {c.comparison} {self.index(c.right)}" for c in e.conditions]
        return " and ".join(parts) or "True"

    def _index_of(self, e: IndexOf) -> str:
        dtype = self.constant(e.dtype.numpy)
        value = f"int64({self.index(e.index)})"
        if e.lanes == 1:
            return f"{value}.astype({dtype})"
        steps = self.constant(np.arange(e.lanes) * e.step)
        return f"({value} + {steps}).astype({dtype})"

    def _call(self, e: ScalarCall) -> str:
        if e.function in _INFIX:
            left, right = self._operands(e.args)
            return f"({left} {_INFIX[e.function]} {right})"
        args = [self.expression(a) for a in e.args]
        if e.function in _PREFIX:
            return f"({_PREFIX[e.function]}{args[0]})"
        if e.function in ("min", "max"):
            return f"{e.function}imum({args[0]}, {args[1]})"
        return f"call_{e.function}({', '.join(args)})"


def _constant(value: float | int | bool, dtype: DType, lanes: int) -> Array:
    scalar = np.array(value).astype(dtype.numpy)
    return scalar[()] if lanes == 1 else np.full(lanes, scalar, dtype.numpy)
