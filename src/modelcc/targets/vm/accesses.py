"""Static bounds of a kernel's accesses, and run-time checks of the rest.

A bound that holds for all iterations, given the numbers of a launch, is a condition on parameters,
evaluated when a file is opened.  Any other is a check in the kernel, hoisted out of the loops for
which it is exact, so that it fails for no file that accesses its own memory only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from modelcc.ir.condition import Condition
from modelcc.ir.index import (
    Atom,
    Index,
    Sym,
    coefficient,
    evaluate,
    floordiv,
    maximum,
    substitute,
    symbols,
)
from modelcc.ir.loop import (
    Alloc,
    BindIndex,
    Check,
    Expr,
    For,
    Function,
    If,
    IndexOf,
    Load,
    Predicate,
    RoutineCall,
    Stmt,
    Store,
    VectorGather,
    VectorScatter,
    While,
)
from modelcc.ir.loop_traversal import (
    checks_in,
    indices,
    statement_expressions,
    statement_indices,
    walk,
)
from modelcc.ir.types import I64
from modelcc.targets.vm.hull import (
    WORD,
    Hull,
    Known,
    NoHullError,
    divisors,
    hull,
    is_natural,
    is_value,
    loop_hull,
    magnitudes,
    most,
    shifted,
)
from modelcc.targets.vm.routines import Need, applied, needs_of, strongest, use_of

_WORD = Hull(-WORD - 1, WORD)


@dataclass(frozen=True)
class Bounded:
    """A kernel's ``function`` with checks, the ``conditions`` on its parameters under which it
    stays within its buffers, and the expressions that must fit a signed 32-bit integer
    (``small``)."""

    function: Function
    conditions: tuple[Condition, ...]
    small: tuple[Index, ...]


def bounded(function: Function, runs: Sequence[Mapping[str, int]]) -> Bounded:
    """``function``, whose parameters have the values of ``runs``, with its accesses bounded.

    :class:`NoHullError` if bounds cannot be determined.
    """
    sizes = {p.buffer.name: p.buffer.size for p in function.parameters}
    work = _Bounding(runs, checks_in(function), sizes)
    body, left = work.block(function.body, {})
    assert not left
    result = replace(function, body=body)
    divisors = [c for c in work.divisors if not isinstance(c.left, int)]
    conditions = [*divisors, *_conditions(work.needs, work.sizes)]
    small = tuple(dict.fromkeys(work.small))
    fits = all(evaluate(e, values) <= WORD for values in runs for e in small)
    if not fits or not all(c.holds(values) for values in runs for c in conditions):
        raise NoHullError("its indices have no bounds of 32 bits")
    known = [c.left for c in conditions if c.comparison == "<" and _is_sum(c.left)]
    return Bounded(result, tuple(dict.fromkeys(conditions)), _undominated(work.small, known))


def _conditions(needs: Sequence[Need], sizes: Mapping[str, Index]) -> list[Condition]:
    """Conditions on parameters under which all needs are met."""
    found: list[Condition] = []
    for need in strongest(needs):
        size = sizes[need.buffer]
        if need.last and not (isinstance(need.place, int) and isinstance(size, int)):
            found.append(Condition(need.place, "<", size))
        elif not need.last and not is_natural(need.place):
            found.append(Condition(need.place, ">=", 0))
    return found


def _undominated(found: Iterable[Index], known: Sequence[Index]) -> tuple[Index, ...]:
    """The sums of nonnegative terms not provably dominated by another one, nor by one of ``known``,
    which are indices of buffers: these have less than 2**30 elements."""
    kept: list[Index] = []
    places = [_terms(e) | {"": 1 << 29} for e in known]
    every = sorted(dict.fromkeys(found), key=lambda e: (-len(_terms(e)), -_terms(e)[""], str(e)))
    for e in every:
        own = _terms(e)
        if (
            isinstance(e, int | Atom)
            or most(e) <= WORD
            or any(_exceeds(place, own) for place in places)
        ):
            continue
        if not any(_exceeds(_terms(other), own) for other in kept):
            kept.append(e)
    return tuple(kept)


def _is_sum(e: Index) -> bool:
    """Whether all terms but the constant are nonnegative."""
    return isinstance(e, int) or is_natural(e - e.const)


def _terms(e: Index) -> dict[str, int]:
    if isinstance(e, int):
        return {"": e}
    return {key: c for key, (c, _) in e.terms.items()} | {"": e.const}


def _exceeds(a: Mapping[str, int], b: Mapping[str, int]) -> bool:
    return all(a.get(key, 0) >= c for key, c in b.items())


@dataclass
class _Bounding:
    """Results so far: needs that the numbers of all ``runs`` meet, divisors, and expressions that
    must be small.  ``number`` is that of checks; ``sizes`` are those of buffers."""

    runs: Sequence[Mapping[str, int]]
    number: int
    sizes: dict[str, Index]
    needs: list[Need] = field(default_factory=list[Need])
    divisors: list[Condition] = field(default_factory=list[Condition])
    small: list[Index] = field(default_factory=list[Index])

    def block(
        self, body: Sequence[Stmt], known: Known, loop: For | None = None
    ) -> tuple[tuple[Stmt, ...], list[Need]]:
        """Statements with checks, and needs that can be hoisted out of the ``loop`` around them."""
        here = dict(known)
        bound: set[str] = set()
        found: list[Stmt] = []
        leaving: list[Need] = []
        checked: dict[Expr, Index] = {}
        for s in body:
            changed, needs = self._statement(s, here)
            inside: list[Need] = []
            for need in needs:
                moved = None if loop is None else self._outside(need, loop, bound)
                if moved is None:
                    inside.append(need)
                else:
                    leaving.append(moved)
            found += self._checks(inside, here)
            found.append(changed)
            match s:
                case Check():
                    checked[s.value] = s.extent
                case BindIndex():
                    bound.add(s.symbol)
                    here[s.symbol] = self._bound(s.value, here, checked)
                case _:
                    pass
        return tuple(found), leaving

    def _statement(self, s: Stmt, known: Known) -> tuple[Stmt, list[Need]]:
        self._note_small(s, known)
        needs: list[Need] = []
        for e in (e for outer in statement_expressions(s) for e in walk(outer)):
            if isinstance(e, Load):
                needs += self._access(e.buffer, e.offset, known)
            elif isinstance(e, VectorGather):
                raise NoHullError("gathers")
        match s:
            case For():
                inner = {**known, s.variable: loop_hull(s, known)}
                body, left = self.block(s.body, inner, s)
                return replace(s, body=body), [*needs, *left]
            case If():
                then, _ = self.block(s.then, known)
                other, _ = self.block(s.other, known)
                return replace(s, then=then, other=other), needs
            case While():
                if needs:
                    raise NoHullError("conditions of loops that read memory")
                return replace(s, body=self.block(s.body, known)[0]), []
            case Alloc(buffer):
                self.sizes[buffer.name] = buffer.size
                return s, needs
            case Store():
                return s, [*needs, *self._access(s.buffer, s.offset, known)]
            case RoutineCall():
                return self._call(s, known)
            case VectorScatter():
                raise NoHullError("scatters")
            case _:
                return s, needs

    def _call(self, s: RoutineCall, known: Known) -> tuple[Stmt, list[Need]]:
        """A call, with sizes clamped to at least 0."""
        sizes = (n if _is_value(n) or _natural(n, known) else maximum(n, 0) for n in s.sizes)
        s = replace(s, sizes=tuple(sizes))
        own = {name: hull(n, known) for name, n in zip(s.routine.sizes, s.sizes, strict=True)}
        inside = use_of(s.routine, own)
        self.small += inside.small
        self.divisors += (Condition(d, ">", 0) for d in inside.divided)
        left: list[Need] = []
        for need in needs_of(s.routine):
            called = applied(need, s)
            offset = dict(
                zip((p.buffer.name for p in s.routine.parameters), s.arguments, strict=True)
            )
            try:
                at = shifted(hull(need.place, own), hull(offset[need.buffer].offset, known))
            except NoHullError:
                left.append(called)
                continue
            left += self._unmet(called, at)
        return s, left

    def _access(self, buffer: str, offset: Index, known: Known) -> list[Need]:
        needs = [Need(buffer, offset, last) for last in (False, True)]
        try:
            at = hull(offset, known)
        except NoHullError:
            return needs
        return [left for need in needs for left in self._unmet(need, at)]

    def _unmet(self, need: Need, at: Hull) -> list[Need]:
        """The need, unless the numbers of the launch meet it for all iterations."""
        place = at.hi if need.last else at.lo
        if not self._meets(place, need):
            return [need]
        self.needs.append(replace(need, place=place, when=()))
        return []

    def _meets(self, place: Index, need: Need) -> bool:
        return all(self._meets_in(values, place, need) for values in self.runs)

    def _meets_in(self, values: Mapping[str, int], place: Index, need: Need) -> bool:
        number, size = (evaluate(e, values) for e in (place, self.sizes[need.buffer]))
        return number < size if need.last else number >= 0

    def _bound(self, value: Expr, known: Known, checked: Mapping[Expr, Index]) -> Hull:
        """The range of a value bound as an index, within 32 bits."""
        if value in checked:
            return Hull(0, hull(checked[value], known).hi - 1)
        if isinstance(value, IndexOf):
            try:
                return hull(value.index, known)
            except NoHullError:
                return _WORD
        if value.dtype.is_integer and value.dtype.bits < 32:
            signed = value.dtype.kind == "int"
            whole = 1 << value.dtype.bits
            return Hull(-whole // 2, whole // 2 - 1) if signed else Hull(0, whole - 1)
        return _WORD

    def _outside(self, need: Need, loop: For, bound: set[str]) -> Need | None:
        """``need`` hoisted out of ``loop``, for all of its iterations, if that is exact."""
        v = loop.variable
        mentioned = symbols(need.place).union(
            *(symbols(c.left) | symbols(c.right) for c in need.when)
        )
        in_conditions = any(v in symbols(side) for c in need.when for side in (c.left, c.right))
        if mentioned & bound or in_conditions or not isinstance(loop.start, int | Sym):
            return None
        place = need.place
        if v in symbols(place):
            factor = coefficient(place, v)
            if factor is None or not (is_natural(factor) or is_natural(-factor)):
                return None
            if any(n not in self.runs[0] for n in symbols(factor)):
                return None
            end = _last(loop) if is_natural(factor) == need.last else loop.start
            place = substitute(place, {v: end})
        whole = (
            isinstance(loop.stop, int) and isinstance(loop.start, int) and loop.start < loop.stop
        )
        when = () if whole else (Condition(loop.start, "<", loop.stop),)
        return replace(need, place=place, when=(*need.when, *when))

    def _checks(self, needs: Sequence[Need], known: Known) -> list[Stmt]:
        """Checks of needs, without redundant ones."""
        result: list[Stmt] = []
        checked: set[tuple[object, ...]] = set()
        for need in strongest(needs):
            key = need.buffer, need.place, need.when
            if key in checked:  # the minimum and the maximum index are equal
                continue
            checked.add(key)
            size = self.sizes[need.buffer]
            check: Stmt = Check(IndexOf(need.place, I64), size, self.number)
            for e in (need.place, *(side for c in need.when for side in (c.left, c.right))):
                self._small_of(e, known)
            open_conditions = tuple(
                c for c in need.when if not (isinstance(c.left, int) and isinstance(c.right, int))
            )
            result.append(If(Predicate(open_conditions), (check,)) if open_conditions else check)
        return _joined(result)

    def _note_small(self, s: Stmt, known: Known) -> None:
        found = [*statement_indices(s)]
        found += (i for outer in statement_expressions(s) for e in walk(outer) for i in indices(e))
        if isinstance(s, For):
            found.append(s.stop + s.step - 1)
        for e in found:
            self._small_of(e, known)

    def _small_of(self, e: Index, known: Known) -> None:
        if isinstance(e, Sym):
            return
        self.small += magnitudes(e, known)
        self.divisors += (Condition(hull(d, known).lo, ">", 0) for d in divisors(e))


def _joined(checks: Sequence[Stmt]) -> list[Stmt]:
    """Merges checks under the same condition."""
    found: list[Stmt] = []
    for s in checks:
        last = found[-1] if found else None
        if isinstance(s, If) and isinstance(last, If) and last.condition == s.condition:
            found[-1] = replace(last, then=(*last.then, *s.then))
        else:
            found.append(s)
    return found


def _is_value(e: Index) -> bool:
    return isinstance(e, Sym) and is_value(e.name)


def _natural(e: Index, known: Known) -> bool:
    try:
        return is_natural(hull(e, known).lo)
    except NoHullError:
        return False


def _last(loop: For) -> Index:
    """The value of the variable in the last iteration, if there is one."""
    if loop.step == 1:
        return loop.stop - 1
    return loop.start + loop.step * floordiv(loop.stop - loop.start - 1, loop.step)
