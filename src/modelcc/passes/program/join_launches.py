"""Horizontal fusion: independent launches of few threads become one.

A launch has a fixed overhead, however little it does: the halves of a rotary embedding, updates of
two caches, or the parts of a concatenation, are a few groups each.

before::

    launch @keys(%k, %cos, %turned)
    launch @values(%v, %cache, %kept)

After, with the groups of @values following those of @keys::

    launch @keys_values(%k, %cos, %v, %cache, %turned, %kept)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from modelcc.ir.condition import Condition
from modelcc.ir.index import Index, Sym, substitute
from modelcc.ir.library import Callee
from modelcc.ir.loop import (
    Assign,
    BindIndex,
    Expr,
    For,
    Function,
    If,
    IndexOf,
    Let,
    Load,
    Parameter,
    Predicate,
    Register,
    Stmt,
    Store,
    VectorGather,
    VectorScatter,
)
from modelcc.ir.loop_traversal import (
    blocks,
    map_blocks,
    names_used,
    operands,
    statement_expressions,
    statements,
    with_operands,
    with_statement_expressions,
)
from modelcc.ir.naming import Names
from modelcc.ir.program import Launch, Program, Step, leaves
from modelcc.ir.region import Branch, Repeat
from modelcc.ir.types import I64

_PLAIN = For, If, Let, BindIndex, Register, Assign, Store, VectorScatter
"""Statements that involve a single thread."""


@dataclass(frozen=True)
class JoinLaunches:
    """Adjacent launches, with up to ``threads`` threads in total, which a machine runs
    concurrently, and up to ``parameters`` parameters."""

    threads: int
    parameters: int = 16

    def __call__(self, program: Program) -> Program:
        """``program`` before memory planning."""
        joining = _JoinedSteps(self, program, Names(program.callee))
        steps = joining.steps(program.steps)
        launched = {step.callee for step in leaves(steps) if isinstance(step, Launch)}
        callees = (*program.callees, *joining.functions.values())
        kept = tuple(callee for callee in callees if callee.name in launched)
        return replace(program, steps=steps, callees=kept)


@dataclass(frozen=True)
class _Kernel:
    """A function of one grid nest and one thread nest."""

    function: Function
    group: str
    groups: int
    thread: str
    threads: int
    body: tuple[Stmt, ...]


@dataclass(frozen=True)
class _LaunchPair:
    """Common arguments of two consecutive launches: for each argument of the second one its
    position in the first one, if both read it or write parts of it, or none."""

    first: tuple[str, tuple[Index, ...]]
    """A function, and its sizes."""
    second: tuple[str, tuple[Index, ...]]
    same: tuple[int | None, ...]


@dataclass(frozen=True)
class _JoinedSteps:
    rules: JoinLaunches
    program: Program
    names: Names
    made: dict[_LaunchPair, Function] = field(default_factory=dict[_LaunchPair, Function])
    functions: dict[str, Function] = field(default_factory=dict[str, Function])
    """Generated functions by name."""

    def steps(self, given: Sequence[Step]) -> tuple[Step, ...]:
        """Steps of a block."""
        found: list[Step] = []
        for step in given:
            before = found[-1] if found else None
            one = None
            if isinstance(step, Launch) and isinstance(before, Launch):
                one = self._joined(before, step)
            if one is None:
                found.append(self._inside(step))
            else:
                found[-1] = one
        return tuple(found)

    def _inside(self, step: Step) -> Step:
        match step:
            case Branch():
                return replace(step, then=self.steps(step.then), other=self.steps(step.other))
            case Repeat():
                return replace(step, body=self.steps(step.body))
            case _:
                return step

    def _callee(self, name: str) -> Callee:
        return self.functions.get(name) or self.program.callee[name]

    def _joined(self, first: Launch, second: Launch) -> Launch | None:
        """The fused launch; None if they stay separate."""
        one, other = (_kernel(self._callee(it.callee), it.sizes) for it in (first, second))
        if one is None or other is None or not (_is_plain(first) and _is_plain(second)):
            return None
        together = one.groups + other.groups
        count = len(first.arguments) + len(second.arguments)
        most = max(one.threads, other.threads)
        if together * most > self.rules.threads or count > self.rules.parameters:
            return None
        if not self._independent(first, one.function, second, other.function):
            return None
        same = _same(first, one.function, second, _filled(first, second))
        calls = (first.callee, first.sizes), (second.callee, second.sizes)
        pair = _LaunchPair(*calls, same)
        function = self.made.get(pair)
        if function is None:
            name = self.names.fresh(f"{first.callee}_{second.callee}")
            function = _both(one, other, pair.same, name)
            self.made[pair] = self.functions[name] = function
        own = zip(second.arguments, pair.same, strict=True)
        arguments = (*first.arguments, *(name for name, same in own if same is None))
        return Launch(
            function.name,
            arguments,
            partial=tuple(dict.fromkeys((*first.partial, *second.partial))),
            source=tuple(dict.fromkeys((*first.source, *second.source))),
            rounding=max(first.rounding, second.rounding),
        )

    def _independent(self, first: Launch, one: Function, second: Launch, other: Function) -> bool:
        """Whether neither writes tensors that the other one accesses, except disjoint parts, nor
        states, which may alias others."""
        bases, states = self.program.bases, self.program.states
        touched, written = list[set[str]](), list[set[str]]()
        for launch, function in ((first, one), (second, other)):
            names = [bases.get(name, name) for name in launch.arguments]
            pairs = zip(names, function.parameters, strict=True)
            touched.append(set(names))
            written.append({name for name, parameter in pairs if parameter.mutable})
        parts = {bases.get(name, name) for name in _filled(first, second)}
        touched = [names - parts for names in touched]
        kept = {bases.get(name, name) for name in (*states, *states.values())}
        meeting = written[0] & touched[1] or written[1] & touched[0]
        return not meeting and not (written[0] | written[1]) & kept


def _is_plain(launch: Launch) -> bool:
    return not (launch.bounds or launch.in_place)


def _filled(first: Launch, second: Launch) -> frozenset[str]:
    """Tensors of which the launches write disjoint parts, as of a concatenation."""
    return frozenset(first.partial).intersection(second.partial)


def _kernel(callee: Callee, sizes: Sequence[Index]) -> _Kernel | None:
    """The kernel if it can be joined, with these sizes; otherwise None."""
    match callee:
        case Function(body=(For(g, 0, int() as groups, (thread,), 1, "grid"),)):
            pass
        case _:
            return None
    if not isinstance(thread, For) or thread.kind != "thread" or not isinstance(thread.stop, int):
        return None
    plain = not any(p.shared for p in callee.parameters) and _by_itself(thread.body)
    if not plain or not all(isinstance(size, int) for size in sizes):
        return None
    known = dict(zip(callee.sizes, sizes, strict=True))
    buffers = (replace(p.buffer, size=substitute(p.buffer.size, known)) for p in callee.parameters)
    parameters = zip(callee.parameters, buffers, strict=True)
    function = replace(callee, parameters=tuple(replace(p, buffer=b) for p, b in parameters))
    bound = (BindIndex(name, IndexOf(size, I64)) for name, size in known.items())
    return _Kernel(function, g, groups, thread.variable, thread.stop, (*bound, *thread.body))


def _by_itself(body: Sequence[Stmt]) -> bool:
    """Whether threads do not communicate."""
    return all(
        isinstance(s, _PLAIN)
        and not (isinstance(s, For) and s.kind in ("grid", "thread", "parallel"))
        and all(map(_by_itself, blocks(s)))
        for s in body
    )


def _same(first: Launch, one: Function, second: Launch, filled: Set[str]) -> tuple[int | None, ...]:
    """For each argument of ``second`` its position in ``first``, if that reads it, or both write
    ``filled`` parts of it."""
    pairs = list(zip(first.arguments, one.parameters, strict=True))
    shared = [name for name, p in pairs if not p.mutable or name in filled]
    numbers = {name: first.arguments.index(name) for name in shared}
    return tuple(map(numbers.get, second.arguments))


def _both(one: _Kernel, other: _Kernel, same: Sequence[int | None], name: str) -> Function:
    """The groups of ``one`` followed by those of ``other``."""
    inside = *_names(one), *_names(other)
    names = Names(dict.fromkeys((*inside, *(p.buffer.name for p in one.function.parameters))))
    olds = [p.buffer.name for p in one.function.parameters]
    # Names defined in `other` may clash with parameters that an earlier join has named.
    own = {old: names.fresh(old) for old in olds if old in _defined(other)}
    given = [
        replace(p, buffer=replace(p.buffer, name=own.get(p.buffer.name, p.buffer.name)))
        for p in one.function.parameters
    ]
    renamed: dict[str, str] = {}
    parameters: list[Parameter] = [*given]
    for parameter, number in zip(other.function.parameters, same, strict=True):
        old = parameter.buffer.name
        if number is None:
            renamed[old] = names.fresh(old)
            buffer = replace(parameter.buffer, name=renamed[old])
            parameters.append(replace(parameter, buffer=buffer))
        else:
            renamed[old] = given[number].buffer.name
    group, thread = names.fresh("group"), names.fresh("thread")
    threads = max(one.threads, other.threads)
    here = Predicate((Condition(Sym(group), "<", one.groups),))
    sides = (
        _side(one, _renamed(one.body, own), Sym(group), Sym(thread), threads),
        _side(other, _renamed(other.body, renamed), Sym(group) - one.groups, Sym(thread), threads),
    )
    inner = For(thread, 0, threads, (If(here, *sides),), kind="thread")
    resident = min(one.function.resident, other.function.resident)
    return Function(
        name,
        tuple(parameters),
        (),
        (For(group, 0, one.groups + other.groups, (inner,), kind="grid"),),
        tuple(dict.fromkeys((*one.function.source, *other.function.source))),
        resident=resident,
        early=one.function.early and other.function.early,
    )


def _names(kernel: _Kernel) -> tuple[str, ...]:
    """All names that a kernel defines or uses."""
    return (kernel.group, kernel.thread, *names_used(kernel.body), *_defined(kernel))


def _defined(kernel: _Kernel) -> tuple[str, ...]:
    """All values and indices that a kernel defines."""
    found: list[str] = []
    for s in statements(kernel.body):
        match s:
            case Let() | Register():
                found.append(s.name)
            case BindIndex():
                found.append(s.symbol)
            case For():
                found.append(s.variable)
            case _:
                pass
    return tuple(found)


def _side(
    kernel: _Kernel, body: tuple[Stmt, ...], group: Index, thread: Index, threads: int
) -> tuple[Stmt, ...]:
    """The statements of a group of ``kernel``, on ``threads`` threads."""
    places = (kernel.group, group), (kernel.thread, thread)
    bound = tuple(BindIndex(name, IndexOf(place, I64)) for name, place in places)
    if kernel.threads == threads:
        return (*bound, *body)
    return (*bound, If(Predicate((Condition(thread, "<", kernel.threads),)), body))


def _renamed(body: Sequence[Stmt], names: Mapping[str, str]) -> tuple[Stmt, ...]:
    """``body`` with buffers renamed."""

    def expression(e: Expr) -> Expr:
        e = with_operands(e, tuple(map(expression, operands(e))))
        if isinstance(e, Load | VectorGather):
            return replace(e, buffer=names.get(e.buffer, e.buffer))
        return e

    def statement(s: Stmt) -> Stmt:
        s = with_statement_expressions(s, tuple(map(expression, statement_expressions(s))))
        if isinstance(s, Store | VectorScatter):
            s = replace(s, buffer=names.get(s.buffer, s.buffer))
        return map_blocks(s, lambda block: _renamed(block, names))

    return tuple(map(statement, body))
