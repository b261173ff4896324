"""Loop functions with their constants as parameters, so that one serves many layers and models.

::

    func @k(%x: i8[490], %y: mut i8[490]) {
      for i in 0 .. 49 { store %y[10*i] = add(load %x[10*i], i8(83)) }
    }

becomes, with ``x.size`` and ``y.size`` 490, ``i.stop`` 49, ``x.i`` and ``y.i`` 10, ``v0`` 83::

    func @k(%x: i8[x.size], %y: mut i8[y.size]; x.size, y.size, i.stop, y.i, x.i, v0) {
      for i in 0 .. i.stop { store %y[y.i*i] = add(load %x[x.i*i], index[i8](v0)) }
    }

Equal constants of one buffer and one variable share a parameter.  Structural constants stay: steps
of loops, short innermost loops, offsets of neighbours, shift counts.  Constants of index
expressions are passed without their sign; those of values are any 32 bits.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from modelcc.ir.argument import Argument
from modelcc.ir.condition import Condition
from modelcc.ir.index import (
    Atom,
    FloorDiv,
    FloorMod,
    Index,
    IndexMax,
    IndexMin,
    Sym,
    evaluate,
    floordiv,
    maximum,
    minimum,
    mod,
    product,
    symbols,
)
from modelcc.ir.loop import (
    Alloc,
    BindIndex,
    Bitcast,
    Buffer,
    Check,
    Const,
    Expr,
    For,
    Function,
    If,
    IndexOf,
    Load,
    Parameter,
    Predicate,
    RoutineCall,
    ScalarCall,
    Stmt,
    Store,
    While,
)
from modelcc.ir.loop_text import print_function
from modelcc.ir.loop_traversal import (
    indices,
    map_blocks,
    operands,
    statement_expressions,
    statement_indices,
    statements,
    walk,
    with_operands,
    with_statement_expressions,
)
from modelcc.ir.types import F32, I32
from modelcc.targets.isa.table import ROUTINES

SHORT = 16
"""Maximum iterations of a copying or filling loop whose trip count stays constant: compilers merge
them to words."""

_NEAR = 4
"""Distance of neighbours whose offset stays constant."""

_SMALL = 256
"""Maximum bytes of a buffer on a kernel's stack."""

_TAPS = 8
"""Sizes of routines below this stay constant: windows of 3 by 3 are specialised."""

_SHIFTS = frozenset({"shl", "shr", "rounding_shr"})

VALUE = "value"
"""Hint of a parameter that is no index: any 32-bit number; its name begins with V."""

_USUAL_FLOATS = (0.0, 1.0, -1.0, 2.0, 0.5)
_LEAST, _MOST = -(1 << 31), (1 << 31) - 1


@dataclass(frozen=True)
class Generalised:
    """``function`` with parameters, and the ``values`` that restore the original; ``sizes`` are the
    parameters that were sizes before.  Its buffers from ``given`` on are its own memory, moved off
    the stack."""

    function: Function
    values: Mapping[str, int]
    given: int
    sizes: tuple[str, ...]


def generalise(function: Function, runs: Sequence[Mapping[str, int]]) -> Generalised:
    """``function`` with its constants as parameters; ``runs`` are the sizes of its calls.

    Buffers are large enough for all runs; other values are those of the first one.
    """
    work = _Generalising({}, runs=runs)
    work.renamed = {name: work.parameter(f"size {name}", n) for name, n in runs[0].items()}
    parameters: list[Parameter] = []
    for p in function.parameters:
        parameters.append(replace(p, buffer=work.sized(p.buffer), shared=True))
    work.local = _kept_locals(function)
    body = work.block(function.body)
    parameters += (Parameter(work.sized(b), mutable=True, shared=True) for b in work.moved)
    first = [str(p.buffer.size) for p in parameters]
    names = tuple(dict.fromkeys((*first, *work.values)))
    general = replace(function, parameters=tuple(parameters), sizes=names, body=body)
    renamed = tuple(symbol.name for symbol in work.renamed.values())
    return Generalised(general, work.values, len(function.parameters), renamed)


def _kept_locals(function: Function) -> frozenset[str]:
    """Local buffers that stay: those accessed at constant indices only, which compilers keep in
    registers, and small ones that the function itself fills."""
    moving: set[str] = set()
    small: set[str] = set()
    made: set[str] = set()
    for s in statements(function.body):
        match s:
            case Alloc(buffer):
                made.add(buffer.name)
                if isinstance(buffer.size, int) and buffer.size * buffer.dtype.bytes <= _SMALL:
                    small.add(buffer.name)
            case Store(buffer=name, offset=offset) if symbols(offset) and name not in small:
                moving.add(name)
            case RoutineCall():
                for argument, p in zip(s.arguments, s.routine.parameters, strict=True):
                    if symbols(argument.offset) or symbols(p.buffer.size):
                        moving.add(argument.buffer)
            case _:
                pass
        for outer in statement_expressions(s):
            loads = (e for e in walk(outer) if isinstance(e, Load))
            moving.update(e.buffer for e in loads if symbols(e.offset))
    stored = {s.buffer for s in statements(function.body) if isinstance(s, Store)}
    return frozenset((made - moving) | (made & small & stored))


@dataclass
class _Generalising:
    """State so far: the ``values`` of parameters, buffers ``moved`` off the stack, and those still
    ``local``.  Without ``indices``, constants of index expressions stay."""

    values: dict[str, int]
    moved: list[Buffer] = field(default_factory=list[Buffer])
    local: frozenset[str] = frozenset()
    indices: bool = True
    runs: Sequence[Mapping[str, int]] = ()
    renamed: Mapping[str, Sym] = field(default_factory=dict[str, Sym])
    _known: dict[tuple[str, int], str] = field(default_factory=dict[tuple[str, int], str])

    def parameter(self, hint: str, value: int) -> Sym:
        """The parameter of a value under a hint, the same for equal pairs."""
        key = hint, value
        if key not in self._known:
            letter = "V" if hint == VALUE else "N"
            name = self._known[key] = f"{letter}{len(self._known)}"
            self.values[name] = value
        return Sym(self._known[key])

    def sized(self, buffer: Buffer) -> Buffer:
        """The buffer with its size as a parameter."""
        size = max(evaluate(buffer.size, run) for run in self.runs)
        return replace(buffer, size=self.parameter(f"size of {buffer.name}", size), space="global")

    # --- index expressions

    def index(self, e: Index, hint: str, near: int = 1, granule: int = 1) -> Index:
        """``e`` with parameters; constants in ``0 … near - 1`` stay.  Multiples of ``granule``
        remain multiples for all parameters."""
        if isinstance(e, int):
            return self._number(e, hint, near, granule)
        if isinstance(e, Atom):
            return self._atom(e, hint)
        total = self._number(e.const, hint, near, granule)
        for coefficient, factors in e.terms.values():
            mono = product(self._atom(f, hint) for f in factors)
            name = f"{hint}.{'.'.join(sorted(symbols(product(factors))))}"
            total = total + self._number(coefficient, name, 2, granule) * mono
        return total

    def _number(self, value: int, hint: str, near: int, granule: int = 1) -> Index:
        if 0 <= value < near or value == -1:
            return value
        if value % granule:
            return value
        sign = -1 if value < 0 else 1
        return self.parameter(hint, abs(value) // granule) * granule * sign

    def _atom(self, e: Atom, hint: str) -> Index:
        match e:
            case Sym(name):
                return self.renamed.get(name, e)
            case FloorDiv(dividend, divisor) | FloorMod(dividend, divisor):
                make = floordiv if isinstance(e, FloorDiv) else mod
                return make(self.index(dividend, hint), self.index(divisor, f"{hint}.by", 2))
            case IndexMin(args):
                return minimum(*(self.index(a, hint) for a in args))
            case IndexMax(args):
                return maximum(*(self.index(a, hint) for a in args))
            case _:
                raise TypeError(f"unknown kind of index atom: {type(e).__name__}")

    def place(self, buffer: str, offset: Index, granule: int = 1) -> Index:
        """An offset in a buffer; those in local buffers stay constant."""
        if buffer in self.local:
            return offset
        return self.index(offset, buffer, _NEAR, granule)

    # --- expressions

    def expression(self, e: Expr) -> Expr:
        """``e`` with parameters."""
        match e:
            case Const():
                return self._constant(e)
            case Load() | IndexOf() | Predicate() if not self.indices:
                return e
            case Load():
                return replace(e, offset=self.place(e.buffer, e.offset), stride=1)
            case IndexOf():
                return replace(e, index=self.index(e.index, "index", 2))
            case Predicate():
                return replace(e, conditions=tuple(map(self._condition, e.conditions)))
            case ScalarCall("and", (first, Const() as mask)):
                return replace(e, args=(self.expression(first), mask))
            case ScalarCall(function, (first, Const(value=count) as shift)) if (
                function in _SHIFTS and count in (1, e.dtype.bits - 1)
            ):
                return replace(e, args=(self.expression(first), shift))
            case _:
                return with_operands(e, [self.expression(o) for o in operands(e)])

    def _condition(self, c: Condition) -> Condition:
        left, right = (self.index(side, "if") for side in (c.left, c.right))
        return Condition(left, c.comparison, right)

    def _constant(self, e: Const) -> Expr:
        if e.dtype == F32 and e.value not in _USUAL_FLOATS:
            bits = int(np.float32(e.value).view(np.int32))
            return Bitcast(IndexOf(self.parameter(VALUE, bits), I32), F32)
        if not e.dtype.is_integer or e.dtype.is_narrow or abs(e.value) <= 1:
            return e
        limits = np.iinfo(e.dtype.numpy)
        if e.value in (limits.min, limits.max) or not _LEAST < e.value <= _MOST:
            return e
        return IndexOf(self.parameter(VALUE, int(e.value)), e.dtype)

    # --- statements

    def block(self, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        """Statements with parameters, without the buffers that were moved."""
        found = (self._statement(s) for s in body)
        return tuple(s for s in found if s is not None)

    def _statement(self, s: Stmt) -> Stmt | None:
        match s:
            case For():
                return self._for(s)
            case If():
                test = self.expression(s.condition)
                then, other = self.block(s.then), self.block(s.other)
                return replace(s, condition=test, then=then, other=other)
            case While():
                return replace(s, condition=self.expression(s.condition), body=self.block(s.body))
            case Alloc(buffer) if buffer.name not in self.local:
                self.moved.append(buffer)
                return None
            case RoutineCall():
                return self._call(s)
            case BindIndex(name, IndexOf() as value):
                index = self.index(value.index, name)
                return replace(s, value=replace(value, index=index))
            case _:
                return self._leaf(s)

    def _leaf(self, s: Stmt) -> Stmt:
        given = [self.expression(e) for e in statement_expressions(s)]
        changed = with_statement_expressions(s, given)
        match changed:
            case Store():
                return replace(changed, offset=self.place(changed.buffer, changed.offset), stride=1)
            case Check():
                return replace(changed, extent=self.index(changed.extent, "check", 2))
            case _:
                return changed

    def _for(self, s: For) -> For:
        v, start, stop = s.variable, s.start, s.stop
        extent = stop - start
        short = _copies(s.body) and isinstance(extent, int) and extent <= SHORT * s.step
        whole = isinstance(start, int) and isinstance(stop, int)
        if s.kind != "unrolled" and not (whole and short):
            start, stop = self.index(start, f"{v}.start"), self.index(stop, f"{v}.stop")
        return replace(s, start=start, stop=stop, body=self.block(s.body))

    def _call(self, s: RoutineCall) -> RoutineCall:
        routine, more = self.routine(s.routine)
        given: list[Argument] = []
        for argument, p in zip(s.arguments, routine.parameters, strict=True):
            granule = max(1, min(p.buffer.align, 4) // p.buffer.dtype.bytes)
            offset = self.place(argument.buffer, argument.offset, granule)
            given.append(replace(argument, offset=offset))
        values = _values_among(s.routine)
        sizes = [
            self.parameter(VALUE, size)
            if own in values and isinstance(size, int)
            else self.index(size, f"{routine.name} {own}", _TAPS)
            for own, size in zip(s.routine.sizes, s.sizes, strict=True)
        ]
        sizes += (self.parameter(VALUE, value) for value in more)
        return RoutineCall(routine, tuple(given), tuple(sizes))

    def routine(self, routine: Function) -> tuple[Function, tuple[int, ...]]:
        """A routine with its values as additional sizes, and these; routines with a
        processor-specific implementation have none."""
        if any(text.routine == routine for text in ROUTINES):
            return routine, ()
        work = _Generalising({}, indices=False)
        body = _with_values(routine.body, work)
        if not work.values:
            return routine, ()
        sizes = (*routine.sizes, *work.values)
        general = replace(routine, body=body, sizes=sizes, name=routine.name.rsplit("_", 1)[0])
        digest = hashlib.sha256(print_function(general).encode()).hexdigest()[:8]
        return replace(general, name=f"{general.name}_{digest}"), tuple(work.values.values())


def _values_among(routine: Function) -> frozenset[str]:
    """Sizes of a routine that are used as values only, in no index expression."""
    found = {name for p in routine.parameters for name in symbols(p.buffer.size)}
    for s in statements(routine.body):
        found.update(name for e in statement_indices(s) for name in symbols(e))
        for e in (e for outer in statement_expressions(s) for e in walk(outer)):
            if not (isinstance(e, IndexOf) and isinstance(e.index, Sym)):
                found.update(name for i in indices(e) for name in symbols(i))
    return frozenset(routine.sizes) - found


def _copies(body: Sequence[Stmt]) -> bool:
    """Whether a loop only copies or fills."""
    match body:
        case (Store(value=Load() | Const()),):
            return True
        case _:
            return False


def _with_values(body: tuple[Stmt, ...], work: _Generalising) -> tuple[Stmt, ...]:
    """Statements with the constants in expressions as parameters."""

    def changed(s: Stmt) -> Stmt:
        if isinstance(s, RoutineCall):
            routine, more = work.routine(s.routine)
            sizes = (*s.sizes, *(work.parameter(VALUE, number) for number in more))
            return replace(s, routine=routine, sizes=sizes)
        s = map_blocks(s, lambda block: tuple(map(changed, block)))
        return with_statement_expressions(s, [work.expression(e) for e in statement_expressions(s)])

    return tuple(map(changed, body))
