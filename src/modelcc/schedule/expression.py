"""Scalar expressions at one point (or one vector of points) of a nest, as loop-level statements."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from types import MappingProxyType

from modelcc.ir.index import Bounds, Index, Sym, ceildiv, coefficient, compare, substitute, symbols
from modelcc.ir.index_bound import IndexBound
from modelcc.ir.loop import (
    Assign,
    BindIndex,
    Check,
    Const,
    Convert,
    Expr,
    If,
    IndexOf,
    Instruction,
    Intrinsic,
    Let,
    Load,
    MulAdd,
    Predicate,
    Register,
    ScalarCall,
    Shuffle,
    Splat,
    Stmt,
    Var,
    VectorGather,
)
from modelcc.ir.loop import Bitcast as LoopBitcast
from modelcc.ir.loop import Select as LoopSelect
from modelcc.ir.scalar import COMBINE_FUNCTION, Combine
from modelcc.ir.scalar_tree import children, index_symbols, reads, walk
from modelcc.ir.tensor import (
    Apply,
    Bind,
    Bitcast,
    Cast,
    Condition,
    Guard,
    IndexValue,
    Linear,
    Number,
    Read,
    Scalar,
    Select,
)
from modelcc.ir.types import BOOL, I64, DType
from modelcc.schedule.lanes import Access, Lanes, regular, repeats, uniform, widen
from modelcc.schedule.linear_rows import LinearRows

NOTHING: Mapping[tuple[str, Index], Var] = MappingProxyType({})


UNBOUND: Mapping[tuple[Expr, IndexBound | None], str] = MappingProxyType({})
ANYWHERE: Bounds = MappingProxyType({})


class FreshNames:
    """Fresh names within one function, none of them ``reserved``."""

    def __init__(self, reserved: frozenset[str] = frozenset()) -> None:
        self._next: dict[str, int] = {}
        self._reserved = reserved

    def fresh(self, stem: str) -> str:
        """``stem0``, ``stem1`` …"""
        number = self._next.get(stem, 0)
        self._next[stem] = number + 1
        name = f"{stem}{number}"
        return self.fresh(stem) if name in self._reserved else name


class PointEmitter:
    """Emits statements computing scalar expressions at points of a nest.

    Loads and bound indices are named and shared while the emitter lives: use one per straight-line
    block.
    """

    def __init__(
        self,
        names: FreshNames,
        lanes: Lanes | None,
        shared: Mapping[tuple[str, Index], Var] = NOTHING,
        bound: Mapping[tuple[Expr, IndexBound | None], str] = UNBOUND,
    ) -> None:
        self.names = names
        self.lanes = lanes
        self.statements: list[Stmt] = []
        self._shared = dict(shared)
        self._bound = dict(bound)
        self._spread: dict[str, Var] = {}
        self.arrays: dict[str, Callable[[tuple[Index, ...]], Expr]] = {}
        """Elements of small arrays in registers, by their indices."""
        self.accesses: dict[Read, Access] = {}
        """Reads of which all that changes between points are numbers."""
        self.ranges: Bounds = ANYWHERE
        """What is known of symbols of points, by which conditions that always hold are left out."""
        self._moved: dict[tuple[str, Index, int], Var] = {}
        self._linear = LinearRows()

    def nested(self) -> PointEmitter:
        """Of statements inside of these, which may use what is there so far."""
        return PointEmitter(self.names, self.lanes, self._shared, self._bound)

    def forget_arrays(self) -> None:
        """What comes is of another point."""
        self.arrays, self.accesses = {}, {}
        self._linear.forget()

    def emit(
        self, scalar: Scalar, point: Mapping[str, Index], internal: Mapping[str, Expr]
    ) -> Expr:
        """Value of ``scalar`` where loop variables are replaced by ``point``.

        The result has one lane if it does not depend on the vector variable.
        """
        match scalar:
            case Number():
                return Const(scalar.value, scalar.dtype)
            case IndexValue():
                return self._index_value(scalar, point)
            case Read() if scalar.tensor in internal:
                return internal[scalar.tensor]
            case Read() if scalar.tensor in self.arrays:
                place = tuple([substitute(i, point) for i in scalar.indices])
                return self.arrays[scalar.tensor](place)
            case Read():
                return self._load(scalar, point)
            case Linear():
                return self._linear.row(
                    scalar, point, lambda s: self.emit(s, point, internal), partial(self.name, "v")
                )
            case Apply():
                args = self._aligned(scalar.args, point, internal)
                if scalar.function in ("max", "min") and scalar.dtype.is_float:
                    return self._extremum(scalar.function, args)
                return ScalarCall(scalar.function, tuple(args), scalar.dtype, args[0].lanes)
            case Select():
                parts = (scalar.condition, scalar.then, scalar.other)
                condition, then, other = self._aligned(parts, point, internal)
                return LoopSelect(condition, then, other)
            case Cast():
                return Convert(self.emit(scalar.value, point, internal), scalar.dtype)
            case Bitcast():
                return LoopBitcast(self.emit(scalar.value, point, internal), scalar.dtype)
            case Guard():
                return self._guard(scalar, point, internal)
            case Bind():
                return self.emit(scalar.body, self.bind(scalar, point, internal), internal)

    def dot_product(
        self, instruction: Instruction, factors: tuple[Read, Read], point: Mapping[str, Index],
        sums: Expr,
    ) -> Intrinsic:  # fmt: skip
        """``sums`` plus products of a repeated operand of ``instruction`` and of one along lanes;
        ``point`` is that of the first element."""
        first = {**point, self.lanes.variable: 0} if self.lanes is not None else point
        repeated, vectors = (o.each for o in instruction.operands[:2])
        a = self._elements(factors[0], first, repeated)
        active = None if self.lanes is None else self.lanes.active_for(factors[1].tensor)
        some = None if active is None else vectors * substitute(active, point)
        b = self._elements(factors[1], first, vectors * sums.lanes, some)
        return Intrinsic(instruction, (a, b, sums))

    def _elements(
        self, read: Read, point: Mapping[str, Index], count: int, active: Index | None = None
    ) -> Var:
        offset = substitute(read.indices[0], point)
        shared = self._shared.get((read.tensor, offset))
        if shared is None:
            load = Load(read.tensor, offset, read.dtype, count, 1, active)
            shared = self.name(_stem(read.tensor), load)
            self._shared[read.tensor, offset] = shared
        return shared

    def name(self, stem: str, value: Expr) -> Var:
        """Bind ``value`` to a fresh name."""
        if isinstance(value, Var):
            return value
        name = self.names.fresh(stem)
        self.statements.append(Let(name, value))
        return Var(name, value.dtype, value.lanes)

    def _extremum(self, function: str, args: Sequence[Expr]) -> Expr:
        """With NaN the loop level takes the second operand; NaN must win on either side."""
        first, second = args
        if isinstance(second, Const):
            first, second = second, first
        dtype, lanes = first.dtype, first.lanes
        if isinstance(first, Const):
            return ScalarCall(function, (first, second), dtype, lanes)
        first = self.name("v", first)
        is_nan = ScalarCall("isnan", (first,), BOOL, lanes)
        return LoopSelect(is_nan, first, ScalarCall(function, (first, second), dtype, lanes))

    def _aligned(
        self, parts: tuple[Scalar, ...], point: Mapping[str, Index], internal: Mapping[str, Expr]
    ) -> list[Expr]:
        values = [self.emit(p, point, internal) for p in parts]
        lanes = max(v.lanes for v in values)
        return [widen(v, lanes) for v in values]

    def _index_value(self, scalar: IndexValue, point: Mapping[str, Index]) -> Expr:
        index = substitute(scalar.index, point)
        if self.lanes is None or self.lanes.variable not in symbols(index):
            return IndexOf(index, scalar.dtype)
        step = coefficient(index, self.lanes.variable)
        if not isinstance(step, int):
            raise ValueError(f"{index} is not linear in the vector variable")
        base = substitute(index, {self.lanes.variable: 0})
        return IndexOf(base, scalar.dtype, self.lanes.count, step)

    def _load(self, read: Read, point: Mapping[str, Index]) -> Var:
        access = self.accesses.get(read) if self.accesses else None
        moved = None if access is None else access.at(point)
        if access is not None and moved is not None:
            return self._load_at(read, access, moved)
        offset = substitute(read.indices[0], point)
        shared = self._shared.get((read.tensor, offset))
        if shared is None:
            shared = self.name(_stem(read.tensor), self._new_load(read, offset, point))
            self._shared[read.tensor, offset] = shared
        return shared

    def _load_at(self, read: Read, access: Access, moved: int) -> Var:
        key = (read.tensor, access.start, moved)
        shared = self._moved.get(key)
        if shared is None:
            offset, shape = access.start + moved, (access.lanes, access.stride, access.active)
            load = Load(read.tensor, offset, read.dtype, *shape)
            shared = self._moved[key] = self.name(_stem(read.tensor), load)
        return shared

    def _new_load(
        self, read: Read, offset: Index, point: Mapping[str, Index]
    ) -> Load | VectorGather | Shuffle:
        lanes = self.lanes
        if not symbols(offset).isdisjoint(self._spread):
            return self._gather(read, offset, point)
        if lanes is None or lanes.variable not in symbols(offset):
            return Load(read.tensor, offset, read.dtype)
        active = lanes.active_for(read.tensor)
        active = substitute(active, point) if active is not None else None
        times = repeats(offset, lanes.variable, lanes.count)
        if times is not None:
            return self._repeated(read, substitute(offset, {lanes.variable: 0}), times, active)
        base, stride = lanes.split(offset)
        return Load(read.tensor, base, read.dtype, lanes.count, stride, active)

    def _repeated(self, read: Read, base: Index, times: int, active: Index | None) -> Shuffle:
        """Neighbours from ``base`` on, each in as many lanes."""
        assert self.lanes is not None
        few = self.lanes.count // times
        some = None if active is None else ceildiv(active, times)
        value = self.name(_stem(read.tensor), Load(read.tensor, base, read.dtype, few, 1, some))
        return Shuffle(value, value, tuple(lane // times for lane in range(self.lanes.count)))

    def _guard(self, node: Guard, point: Mapping[str, Index], internal: Mapping[str, Expr]) -> Expr:
        conditions = conditions_at(node.conditions, point, self.lanes, self.ranges)
        if conditions is None:
            return self.emit(node.outside, point, internal)
        if not conditions:
            return self.emit(node.inside, point, internal)
        outside = self.emit(node.outside, point, internal)
        nested = self.nested()
        nested._spread = dict(self._spread)
        nested.arrays, nested.accesses = self.arrays, self.accesses
        nested._moved, nested.ranges = dict(self._moved), self.ranges
        inside = nested.emit(node.inside, point, internal)
        width = max(inside.lanes, outside.lanes)
        register = self.names.fresh("g")
        self.statements.append(Register(register, widen(outside, width)))
        then = (*nested.statements, Assign(register, widen(inside, width)))
        self.statements.append(If(Predicate(conditions), then))
        return self.name("v", Var(register, node.dtype, width))

    def bind(
        self, node: Bind, point: Mapping[str, Index], internal: Mapping[str, Expr]
    ) -> Mapping[str, Index]:
        """``point`` with the symbol of ``node`` at its value, which is found and checked here."""
        value = self.emit(node.value, point, internal)
        key = (value, node.bound)
        symbol = self._bound.get(key)
        if symbol is None:
            symbol = self._bound[key] = self.names.fresh(node.symbol + "_")
            if value.lanes == 1:
                self.statements.append(BindIndex(symbol, value))
            else:
                wide = value if value.dtype == I64 else Convert(value, I64)
                self._spread[symbol] = self.name("i", wide)
            if node.bound is not None:
                extent = substitute(node.bound.extent, point)
                self.statements.append(self._check(symbol, extent, node.bound.number, point))
        return {**point, node.symbol: Sym(symbol)}

    def _check(self, symbol: str, extent: Index, number: int, point: Mapping[str, Index]) -> Check:
        value = self._spread.get(symbol)
        if value is None:
            return Check(IndexOf(Sym(symbol), I64), extent, number)
        return Check(value, extent, number, self._active_at(point))

    def _active_at(self, point: Mapping[str, Index]) -> Index | None:
        """Lanes that exist."""
        active = self.lanes.active if self.lanes is not None else None
        return None if active is None else substitute(active, point)

    def _gather(self, read: Read, offset: Index, point: Mapping[str, Index]) -> VectorGather:
        """A load of which each lane has an index of its own."""
        lanes = self.lanes
        assert lanes is not None
        offsets: Expr | None = None
        rest: dict[str, Index] = {lanes.variable: 0}
        terms: list[tuple[str, Expr]] = [(name, self._spread[name]) for name in self._spread]
        terms.append((lanes.variable, IndexOf(0, I64, lanes.count, 1)))
        for name, lane in terms:
            step = coefficient(offset, name)
            rest[name] = 0
            if step == 0:
                continue
            if step is None:
                raise ValueError(f"{offset} is not linear in {name}")
            if step != 1:
                times = Splat(IndexOf(step, I64), lanes.count)
                lane = ScalarCall("mul", (lane, times), I64, lanes.count)
            offsets = (
                lane if offsets is None else ScalarCall("add", (offsets, lane), I64, lanes.count)
            )
        assert offsets is not None
        base = substitute(offset, rest)
        return VectorGather(read.tensor, base, offsets, read.dtype, self._active_at(point))


def conditions_at(
    conditions: Sequence[Condition],
    point: Mapping[str, Index],
    lanes: Lanes | None = None,
    ranges: Bounds = ANYWHERE,
) -> tuple[Condition, ...] | None:
    """Conditions (against 0) at ``point`` that are not known to hold within ``ranges``; None if one
    never holds.

    They hold for all ``lanes`` or none."""
    result: list[Condition] = []
    for condition in conditions:
        left = substitute(condition.left, point)
        if lanes is not None:
            left = substitute(left, {lanes.variable: 0})
        known = None
        if ranges or isinstance(left, int):
            known = compare(left, condition.comparison, 0, ranges)
        if known is False:
            return None
        if known is None:
            result.append(Condition(left, condition.comparison, 0))
    return tuple(result)


def _stem(tensor: str) -> str:
    return "".join(ch if ch.isalnum() else "_" for ch in tensor[:12]) + "_"


def combine_function(combine: Combine, dtype: DType) -> str:
    """The binary function of a reduction over ``dtype``; extremes of truth values are logic."""
    if dtype.kind == "bool" and combine in ("max", "min"):
        return "or" if combine == "max" else "and"
    return COMBINE_FUNCTION[combine]


def accumulate(combine: Combine, register: str, value: Expr, lanes: int) -> Assign:
    """``register = register combined with value``; a sum of products becomes a MulAdd."""
    current = Var(register, value.dtype, lanes)
    if combine == "sum" and isinstance(value, ScalarCall) and value.function == "mul":
        a, b = (widen(v, lanes) for v in value.args)
        return Assign(register, MulAdd(a, b, current))
    function = combine_function(combine, value.dtype)
    args = (current, widen(value, lanes))
    return Assign(register, ScalarCall(function, args, value.dtype, lanes))


def vectorisable(
    scalar: Scalar,
    variable: str,
    lanes: int,
    internal: Collection[str] = (),
    gathers: bool = False,
    repeated: bool = False,
    aligned: bool = False,
) -> bool:
    """Whether the expression can be evaluated for whole vectors along ``variable``.

    Every index must be linear within a vector, and guards may not depend on the variable.
    Positions from memory may do so only where ``gathers`` are wanted, each lane reading at its
    own; else neither these nor values of ``internal`` tensors, which may depend on it.  Several
    neighbours may read one element (:func:`repeats`) if ``repeated``.  Of vectors that are
    ``aligned``, which begin at multiples of ``lanes``, guards may hold for all elements or none.
    """
    match scalar:
        case Read(indices=(index,)) if repeated and repeats(index, variable, lanes) is not None:
            return True
        case Read():
            return all(regular(i, variable, lanes) for i in scalar.indices)
        case IndexValue():
            return isinstance(coefficient(scalar.index, variable), int)
        case Guard():
            moving = [c for c in scalar.conditions if variable in symbols(c.left)]
            if moving and not (aligned and all(uniform(c, variable, lanes) for c in moving)):
                return False
        case Linear():
            if variable in symbols(scalar.row):
                return False
        case Bind():
            if moves(scalar, variable, internal):
                inner = (scalar.value, scalar.body)
                return (
                    gathers
                    and _spreads(scalar, variable)
                    and all(vectorisable(s, variable, lanes, internal, True) for s in inner)
                )
            return vectorisable(scalar.body, variable, lanes, internal, gathers, repeated, aligned)
        case _:
            pass
    options = internal, gathers, repeated, aligned
    return all(vectorisable(part, variable, lanes, *options) for part in children(scalar))


def moves(bind: Bind, variable: str, internal: Collection[str] = ()) -> bool:
    """Whether the position that ``bind`` finds may differ between the lanes along ``variable``."""
    # A read without indices is a register, which holds a whole vector.
    held = any(not r.indices or r.tensor in internal for r in reads(bind.value))
    return held or variable in index_symbols(bind.value)


def _spreads(bind: Bind, variable: str) -> bool:
    """Whether each lane may have a position of its own: one that is found among integers, which
    nothing but reads use, in steps of one size."""
    plain = (Read, Number, IndexValue, Apply, Select, Cast)
    for node in walk(bind.value):
        if not isinstance(node, plain) or node.dtype.is_float:
            return False
    for node in walk(bind.body):
        match node:
            case Read(indices=(index,)):
                if any(coefficient(index, name) is None for name in (bind.symbol, variable)):
                    return False
            case Bind():
                if bind.symbol in index_symbols(node.value):
                    return False  # that position moves along, too
            case Read() | IndexValue() | Guard():
                if bind.symbol in index_symbols(node):
                    return False
            case _:
                pass
    return True
