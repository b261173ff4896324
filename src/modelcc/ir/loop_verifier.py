"""Checks that loop functions are well formed: names, types, registers, memory, parallelism."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from modelcc.ir.copies import CopyAsync, Prefetch, WaitCopies
from modelcc.ir.copy_faults import copy_fault
from modelcc.ir.errors import ModelError
from modelcc.ir.index import (
    Bounds,
    Index,
    Range,
    Sym,
    bounds_of,
    evaluate,
    mod,
    split_affine,
    substitute,
    symbols,
)
from modelcc.ir.instructions import meaning_fault
from modelcc.ir.loop import (
    Alloc,
    Arrive,
    Assign,
    BindIndex,
    Buffer,
    Check,
    Expr,
    For,
    Function,
    If,
    Instruction,
    Intrinsic,
    Let,
    Load,
    ParallelCall,
    Register,
    RoutineCall,
    Stmt,
    Store,
    TakeTurns,
    Var,
    VectorGather,
    VectorScatter,
    While,
)
from modelcc.ir.loop_group_verifier import GroupLimits, is_of_groups, verify_groups
from modelcc.ir.loop_text import statement_text
from modelcc.ir.loop_traversal import (
    blocks,
    checks_in,
    indices,
    is_parallel,
    operands,
    statement_expressions,
    statement_indices,
    takes_pool,
    walk,
)
from modelcc.ir.loop_typing import type_fault
from modelcc.ir.tiles import CopyTile, ExpectBytes, WaitArrival, WaitRoutines
from modelcc.ir.types import BOOL, I64

UNLIMITED = GroupLimits()

SIZE = 64
"""The value of sizes with which accesses are tested first."""


def verify_functions(functions: Sequence[Function]) -> None:
    """:func:`verify_function` for each, and that their names differ."""
    names: set[str] = set()
    for function in functions:
        if function.name in names:
            raise ModelError("there are two functions of this name", (f"@{function.name}",))
        names.add(function.name)
        verify_function(function)


def verify_function(function: Function, limits: GroupLimits = UNLIMITED) -> None:
    """Raise :class:`ModelError` naming the first statement that breaks a rule of loops.

    A name is defined once where it is visible, before it is used; dtypes and lanes agree;
    registers are not shared by iterations of a parallel loop; accesses that are provably outside
    of their buffer are rejected.  Groups of threads satisfy :func:`verify_groups`, within the
    target's ``limits``.
    """
    verifier = _Verifier(function)
    verifier.verify()
    if verifier.has_groups:
        verify_groups(function, limits)
    elif function.resident or function.early:
        raise ModelError("groups are resident or early, and it has none", (f"@{function.name}",))


@dataclass
class _Scope:
    """Names of one block.  ``in_parallel`` distinguishes the loop's own names from outer ones.

    ``point`` has one value of each symbol: of the first iterations, for some size.
    """

    in_parallel: bool
    symbols: dict[str, Range] = field(default_factory=dict[str, Range])
    values: dict[str, Let | Register] = field(default_factory=dict[str, "Let | Register"])
    buffers: dict[str, tuple[Buffer, bool]] = field(
        default_factory=dict[str, "tuple[Buffer, bool]"]
    )
    exact: set[str] = field(default_factory=set[str])
    point: dict[str, int] = field(default_factory=dict[str, int])


class _Verifier:
    def __init__(self, function: Function) -> None:
        self._function = function
        self._scopes = [_Scope(False)]
        self._at: Stmt | None = None
        self.has_groups = False
        self._conditions = 0
        self._dynamic_loops = 0
        self._instructions: dict[str, tuple[Instruction, set[int]]] = {}
        self._routines: dict[str, Function] = {}
        self._taken_as: dict[str, str] = {}
        self._verified: set[Function] = set()

    def verify(self) -> None:
        """Check parameters, then the body."""
        for parameter in function_buffers(self._function):
            self._declare_buffer(parameter[0], parameter[1])
        for name in self._function.sizes:
            self._new_name(name)
            self._scopes[-1].symbols[name] = Range(0, None)
            self._scopes[-1].point[name] = SIZE
        for value in self._function.values:
            self._new_name(value.name)
            self._scopes[-1].values[value.name] = Let(value.name, value)
        for buffer, _ in function_buffers(self._function):
            self._check_symbols(buffer.size)
        self._block(self._function.body, top=True)

    def _fail(self, message: str) -> ModelError:
        where = () if self._at is None else (statement_text(self._at),)
        return ModelError(message, (f"@{self._function.name}", *where))

    # --- names

    @contextmanager
    def _nested(self, in_parallel: bool = False) -> Generator[_Scope]:
        scope = _Scope(in_parallel or self._scopes[-1].in_parallel)
        self._scopes.append(scope)
        try:
            yield scope
        finally:
            self._scopes.pop()

    def _new_name(self, name: str) -> None:
        for scope in self._scopes:
            if name in scope.symbols or name in scope.values or name in scope.buffers:
                raise self._fail(f"'{name}' is already defined here")

    def _declare_buffer(self, buffer: Buffer, mutable: bool) -> None:
        self._new_name(buffer.name)
        if buffer.align < 1 or buffer.align & (buffer.align - 1):
            raise self._fail(f"%{buffer.name}: alignment {buffer.align} is no power of two")
        self._scopes[-1].buffers[buffer.name] = (buffer, mutable)

    def _buffer(self, name: str) -> tuple[Buffer, bool, _Scope]:
        for scope in reversed(self._scopes):
            if name in scope.buffers:
                return (*scope.buffers[name], scope)
        raise self._fail(f"there is no buffer %{name} here")

    def _value(self, name: str) -> tuple[Let | Register, _Scope]:
        for scope in reversed(self._scopes):
            if name in scope.values:
                return scope.values[name], scope
        raise self._fail(f"there is no value %{name} here")

    def _check_symbols(self, index: Index) -> None:
        if isinstance(index, int):
            return
        known = [scope.symbols for scope in self._scopes]
        missing = [n for n in symbols(index) if not any(n in names for names in known)]
        if missing:
            raise self._fail(f"index symbol '{min(missing)}' is not defined here")

    def _bounds(self) -> Bounds:
        return {name: r for scope in self._scopes for name, r in scope.symbols.items()}

    def _point(self) -> Mapping[str, int]:
        return {name: v for scope in self._scopes for name, v in scope.point.items()}

    # --- statements

    def _block(self, body: Sequence[Stmt], top: bool = False) -> None:
        for s in body:
            self._at = s
            for index in statement_indices(s):
                self._check_symbols(index)
            for e in statement_expressions(s):
                self._expression(e)
            self._statement(s, top)

    def _blocks(self, s: Stmt) -> None:
        for block in blocks(s):
            with self._nested():
                self._block(block)

    def _statement(self, s: Stmt, top: bool) -> None:
        self.has_groups = self.has_groups or is_of_groups(s)
        match s:
            case For():
                self._for(s, top)
            case If() | While():
                if s.condition.dtype != BOOL or s.condition.lanes != 1:
                    raise self._fail("the condition must be a scalar bool")
                self._conditions += 1
                self._blocks(s)
                self._conditions -= 1
            case Arrive() | TakeTurns():
                if isinstance(s, Arrive):
                    self._check_range(self._buffer(s.counters)[0], s.slot, 1, 0)
                self._blocks(s)
            case Let() | Register():
                self._new_name(s.name)
                self._scopes[-1].values[s.name] = s
            case BindIndex():
                if not s.value.dtype.is_integer or s.value.lanes != 1:
                    raise self._fail("an index symbol must be a scalar integer")
                self._new_name(s.symbol)
                self._scopes[-1].symbols[s.symbol] = Range(None, None)
                self._scopes[-1].point[s.symbol] = 0
            case Check():
                if s.number < 0:
                    raise self._fail("checks are numbered from 0")
                if s.value.dtype != I64:
                    raise self._fail(f"an index that is checked must be i64, not {s.value.dtype}")
            case Assign():
                self._assign(s)
            case Alloc():
                if not isinstance(s.buffer.size, int) or s.buffer.space == "global":
                    raise self._fail(f"a {s.buffer.space} buffer needs a constant size")
                self._declare_buffer(s.buffer, True)
            case Store() | VectorScatter():
                self._store(s)
            case WaitCopies() | WaitRoutines() if s.pending < 0:
                raise self._fail("so many batches cannot be pending")
            case CopyAsync() | CopyTile():
                self._copy(s)
            case ExpectBytes() | WaitArrival():
                self._arrivals(s.arrivals, s.slot)
            case Prefetch():
                self._buffer(s.buffer)
            case ParallelCall():
                self._parallel_call(s, top)
            case RoutineCall():
                self._call(s)
            case _:
                pass

    def _for(self, s: For, top: bool) -> None:
        if s.step < 1:
            raise self._fail(f"the step {s.step} must be positive")
        if s.kind == "parallel":
            self._check_single(top)
        elif s.when:
            raise self._fail("only a parallel loop has a condition")
        extent = s.stop - s.start
        if s.kind == "unrolled" and not isinstance(extent, int):
            raise self._fail(f"a loop over {extent} cannot be unrolled: it needs a number")
        self._new_name(s.variable)
        with self._nested(s.kind in ("parallel", "grid", "thread")) as scope:
            last = s.stop - 1
            if isinstance(s.start, int) and isinstance(extent, int) and extent > 0:
                last = s.start + (extent - 1) // s.step * s.step
                scope.exact.add(s.variable)
            scope.symbols[s.variable] = Range(s.start, last)
            scope.point[s.variable] = evaluate(s.start, self._point())
            self._dynamic_loops += not isinstance(extent, int)
            self._block(s.body)
            self._dynamic_loops -= not isinstance(extent, int)

    def _check_single(self, top: bool) -> None:
        kinds = (isinstance(s, ParallelCall) or is_parallel(s) for s in self._function.body)
        if not top or sum(kinds) > 1:
            raise self._fail("a function has at most one parallel loop, its outermost one")

    def _parallel_call(self, s: ParallelCall, top: bool) -> None:
        self._check_single(top)
        outlined = s.outlined
        for own in outlined.parameters:
            buffer, mutable, _ = self._buffer(own.buffer.name)
            if replace(own.buffer, space=buffer.space) != buffer or own.mutable > mutable:
                raise self._fail(f"%{buffer.name} is another buffer here")
        for value in outlined.values:
            self._check_variable(value)
            if isinstance(self._value(value.name)[0], Register):
                raise self._fail(f"iterations in parallel would share register %{value.name}")
        for name in outlined.sizes[:-2]:
            self._check_symbols(Sym(name))
        if len(outlined.sizes) < 2 or takes_pool(outlined):
            raise self._fail(f"@{outlined.name} is no part of a parallel loop")
        verify_function(outlined)

    def _call(self, s: RoutineCall) -> None:
        routine = s.routine
        if self._routines.setdefault(routine.name, routine) != routine:
            raise self._fail(f"there are two routines called @{routine.name}")
        if len(s.arguments) != len(routine.parameters) or len(s.sizes) != len(routine.sizes):
            raise self._fail(f"@{routine.name} takes {_count(routine.parameters, routine.sizes)}, "
                             f"not {_count(s.arguments, s.sizes)}")  # fmt: skip
        if takes_pool(routine) or checks_in(routine) or routine.values:
            raise self._fail(f"@{routine.name} can be run by itself only")
        if routine not in self._verified:
            verify_function(routine)
            self._verified.add(routine)
        named = [argument.buffer for argument in s.arguments]
        sizes = dict(zip(routine.sizes, s.sizes, strict=True))
        for argument, parameter in zip(s.arguments, routine.parameters, strict=True):
            buffer, mutable, scope = self._buffer(argument.buffer)
            taken = parameter.buffer
            if buffer.dtype != taken.dtype:
                raise self._fail(f"%{taken.name} of @{routine.name} has elements of {taken.dtype}, "
                                 f"not {buffer.dtype}")  # fmt: skip
            if parameter.mutable:
                self._check_writable(buffer, mutable, scope)
                if named.count(buffer.name) > 1:
                    raise self._fail(f"%{buffer.name} is given twice, and written")
                if buffer.space == "tile" or (s.beside and buffer.space != "warp"):
                    raise self._fail(f"%{buffer.name} is no place for @{routine.name}'s results")
            self._check_range(buffer, argument.offset, 1, 0)
            self._check_range(buffer, argument.offset + substitute(taken.size, sizes) - 1, 1, 0)
            if buffer.space == "warp":
                self._check_fragment(buffer, argument.offset, taken)

    def _check_fragment(self, buffer: Buffer, offset: Index, taken: Buffer) -> None:
        """A warp's fragment has one machine-specific layout per name that routines give it."""
        name = self._taken_as.setdefault(buffer.name, taken.name)
        if name != taken.name:
            raise self._fail(f"%{buffer.name} is taken as %{name} and as %{taken.name}")
        whole = isinstance(taken.size, int) and mod(offset, taken.size) == 0
        if not whole or evaluate(buffer.size, {}) % taken.size:
            raise self._fail(f"%{buffer.name} is in parts of {taken.size}, not from {offset} on")

    def _copy(self, s: CopyAsync | CopyTile) -> None:
        (to, mutable, scope), (source, changes, _) = self._buffer(s.to), self._buffer(s.source)
        self._check_writable(to, mutable, scope)
        if fault := copy_fault(s, to, source, None if changes else self._function.sizes):
            raise self._fail(fault)
        self._check_range(to, s.to_offset, s.lanes, 1)
        if isinstance(s, CopyTile):
            self._check_range(source, s.last, 1, 0)
            self._arrivals(s.arrivals, s.slot)
        elif s.active is None:
            self._check_range(source, s.source_offset, s.lanes, 1)

    def _arrivals(self, name: str, slot: Index) -> None:
        if self._buffer(name)[0].space != "arrivals":
            raise self._fail(f"%{name} counts no arrivals")
        self._check_range(self._buffer(name)[0], slot, 1, 0)

    def _check_writable(self, buffer: Buffer, mutable: bool, scope: _Scope) -> None:
        if not mutable:
            raise self._fail(f"%{buffer.name} is an input and cannot be written")
        if buffer.space == "local" and self._scopes[-1].in_parallel and not scope.in_parallel:
            raise self._fail(f"iterations of a parallel loop would share local %{buffer.name}")

    def _assign(self, s: Assign) -> None:
        register, scope = self._value(s.name)
        if not isinstance(register, Register):
            raise self._fail(f"%{s.name} is no register and cannot be changed")
        if self._scopes[-1].in_parallel and not scope.in_parallel:
            raise self._fail(f"iterations of a parallel loop would share register %{s.name}")
        have, want = s.value, register.value
        if (have.dtype, have.lanes) != (want.dtype, want.lanes):
            raise self._fail(
                f"register %{s.name} holds {_shape(want)}, but is assigned {_shape(have)}"
            )

    def _elements(self, name: str) -> tuple[Buffer, bool, _Scope]:
        """A buffer that is accessed by element."""
        found = self._buffer(name)
        if found[0].space in ("tile", "arrivals"):
            raise self._fail(f"%{name} is of space {found[0].space}: only routines touch it")
        return found

    def _store(self, s: Store | VectorScatter) -> None:
        buffer, mutable, scope = self._elements(s.buffer)
        self._check_writable(buffer, mutable, scope)
        if s.value.dtype != buffer.dtype:
            raise self._fail(
                f"%{s.buffer} has elements of {buffer.dtype}, but {s.value.dtype} are stored"
            )
        if isinstance(s, VectorScatter):
            if s.offsets.lanes != s.value.lanes or not s.offsets.dtype.is_integer:
                raise self._fail("there must be one integer offset for each lane stored")
        elif s.active is None:
            self._check_range(buffer, s.offset, s.value.lanes, s.stride)

    # --- expressions

    def _expression(self, outer: Expr) -> None:
        for e in walk(outer):
            for index in indices(e):
                self._check_symbols(index)
            match e:
                case Var():
                    self._check_variable(e)
                case Load():
                    self._check_load(e)
                case VectorGather():
                    if self._elements(e.buffer)[0].dtype != e.dtype:
                        raise self._fail(f"%{e.buffer} has no elements of {e.dtype}")
                case _:
                    pass
            fault = type_fault(e, operands(e))
            if not fault and isinstance(e, Intrinsic):
                fault = self._instruction_fault(e)
            if fault:
                raise self._fail(fault)

    def _instruction_fault(self, e: Intrinsic) -> str:
        """Each is checked once per number of lanes; a name identifies one instruction."""
        instruction, lanes = e.instruction, e.lanes
        seen = self._instructions.setdefault(instruction.name, (instruction, set()))
        if seen[0] != instruction:
            return f"there are two instructions called {instruction.name}"
        fault = "" if lanes in seen[1] else meaning_fault(instruction, lanes)
        seen[1].add(lanes)
        return fault

    def _check_variable(self, e: Var) -> None:
        definition, scope = self._value(e.name)
        value = definition.value
        if (value.dtype, value.lanes) != (e.dtype, e.lanes):
            raise self._fail(f"%{e.name} is {_shape(value)}, not {_shape(e)}")
        is_shared = self._scopes[-1].in_parallel and not scope.in_parallel
        if isinstance(definition, Register) and is_shared:
            raise self._fail(f"iterations of a parallel loop would share register %{e.name}")

    def _check_load(self, e: Load) -> None:
        buffer = self._elements(e.buffer)[0]
        if buffer.dtype != e.dtype:
            raise self._fail(f"%{e.buffer} has elements of {buffer.dtype}, not {e.dtype}")
        if e.active is None:
            self._check_range(buffer, e.offset, e.lanes, e.stride)

    def _check_range(self, buffer: Buffer, offset: Index, lanes: int, stride: Index) -> None:
        """Reject accesses that are always out of range, or sometimes where that is certain.

        Guarded accesses are accepted: the guard may never hold there.  So are those of a buffer of
        fixed size in loops over named extents, which asserted conditions may make empty.
        """
        if self._conditions:
            return
        bounds = self._bounds()
        point = self._point()
        exact = {name for scope in self._scopes for name in scope.exact}
        for end in (offset, offset + (lanes - 1) * stride):
            names = symbols(end) | symbols(buffer.size)
            # Bounds of expressions that are not affine need not be attained.
            affine = split_affine(end - buffer.size, sorted(names)) is not None
            certain = names <= exact and affine
            if not certain and self._dynamic_loops and isinstance(buffer.size, int):
                continue
            if not certain and _is_inside(end, buffer.size, point):
                continue  # in range once means not always out of range: a cheap test
            below, above = bounds_of(end, bounds), bounds_of(end - buffer.size, bounds)
            low = below.lo if certain else below.hi
            high = above.hi if certain else above.lo
            if (low is not None and low < 0) or (high is not None and high >= 0):
                raise self._fail(
                    f"element {end} lies outside of %{buffer.name}, which has {buffer.size}"
                )


def function_buffers(function: Function) -> tuple[tuple[Buffer, bool], ...]:
    """Parameter buffers and whether they may be written."""
    return tuple((p.buffer, p.mutable) for p in function.parameters)


def _is_inside(end: Index, size: Index, point: Mapping[str, int]) -> bool:
    """Whether ``end`` is the index of one of ``size`` elements; False if its divisors are 0, as in
    an index over an empty axis."""
    try:
        return 0 <= evaluate(end, point) < evaluate(size, point)
    except ZeroDivisionError:
        return False


def _count(buffers: Sequence[object], sizes: Sequence[object]) -> str:
    return f"{len(buffers)} buffers and {len(sizes)} sizes"


def _shape(e: Expr) -> str:
    return f"{e.dtype}x{e.lanes}" if e.lanes != 1 else f"{e.dtype}"
