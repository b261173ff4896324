"""Walking and rebuilding loop-level expressions and statements without naming every kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from modelcc.ir.condition import Condition
from modelcc.ir.index import Index, symbols
from modelcc.ir.loop import (
    Alloc,
    Assign,
    Barrier,
    BindIndex,
    Bitcast,
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
    Prefetch,
    Reduce,
    Register,
    ScalarCall,
    Select,
    Shuffle,
    Splat,
    Stmt,
    Store,
    Var,
    VectorGather,
    VectorScatter,
    While,
)

FAULTS = ".faults"
"""The memory of a function's checks, as :func:`names_used` calls it: two i64 for each number, of
which the first is set and the second is the index where one fails."""


def operands(e: Expr) -> tuple[Expr, ...]:
    """The expressions directly inside ``e``, in order."""
    match e:
        case Const() | Var() | IndexOf() | Load() | Predicate():
            return ()
        case VectorGather():
            return (e.offsets,)
        case ScalarCall() | Intrinsic():
            return e.args
        case MulAdd():
            return (e.a, e.b, e.c)
        case Shuffle():
            return (e.a, e.b)
        case Select():
            return (e.condition, e.then, e.other)
        case Convert() | Bitcast() | Splat() | Reduce():
            return (e.value,)


def with_operands(e: Expr, new: Sequence[Expr]) -> Expr:
    """``e`` with its direct operands replaced, in the order of :func:`operands`."""
    match e:
        case Const() | Var() | IndexOf() | Load() | Predicate():
            return e
        case VectorGather():
            return replace(e, offsets=new[0])
        case ScalarCall() | Intrinsic():
            return replace(e, args=tuple(new))
        case MulAdd():
            return MulAdd(*new)
        case Shuffle():
            return replace(e, a=new[0], b=new[1])
        case Select():
            return Select(*new)
        case Convert() | Bitcast() | Splat() | Reduce():
            return replace(e, value=new[0])


def indices(e: Expr) -> tuple[Index, ...]:
    """The index expressions directly inside ``e``."""
    match e:
        case IndexOf():
            return (e.index,)
        case Load():
            return (e.offset, e.stride, *_present(e.active))
        case VectorGather():
            return (e.offset, *_present(e.active))
        case Predicate():
            return tuple(side for c in e.conditions for side in (c.left, c.right))
        case _:
            return ()


def statement_expressions(s: Stmt) -> tuple[Expr, ...]:
    """The expressions directly inside ``s``, not those of its blocks."""
    match s:
        case If() | While():
            return (s.condition,)
        case Let() | BindIndex() | Check() | Register() | Assign() | Store():
            return (s.value,)
        case VectorScatter():
            return (s.offsets, s.value)
        case For() | Alloc() | Barrier() | Prefetch() | ParallelCall() | Comment():
            return ()


def with_statement_expressions(s: Stmt, new: Sequence[Expr]) -> Stmt:
    """``s`` with its direct expressions replaced, in the order of their listing."""
    match s:
        case If() | While():
            return replace(s, condition=new[0])
        case Let() | BindIndex() | Check() | Register() | Assign() | Store():
            return replace(s, value=new[0])
        case VectorScatter():
            return replace(s, offsets=new[0], value=new[1])
        case For() | Alloc() | Barrier() | Prefetch() | ParallelCall() | Comment():
            return s


def statement_indices(s: Stmt) -> tuple[Index, ...]:
    """The index expressions directly inside ``s``, not those of its expressions."""
    match s:
        case For():
            return (s.start, s.stop, *_sides(s.when), *(s.part or ()))
        case ParallelCall():
            return (s.count, *_sides(s.when))
        case Store():
            return (s.offset, s.stride, *_present(s.active))
        case VectorScatter():
            return (s.offset, *_present(s.active))
        case Prefetch():
            return (s.offset,)
        case Check():
            return (s.extent, *_present(s.active))
        case _:
            return ()


def blocks(s: Stmt) -> tuple[tuple[Stmt, ...], ...]:
    """The statement lists directly inside ``s``."""
    match s:
        case For() | While():
            return (s.body,)
        case If():
            return (s.then, s.other)
        case ParallelCall():
            return (s.outlined.body,)
        case _:
            return ()


def map_blocks(s: Stmt, rewrite: Callable[[tuple[Stmt, ...]], tuple[Stmt, ...]]) -> Stmt:
    """``s`` with each directly contained statement list rewritten."""
    match s:
        case For() | While():
            return replace(s, body=rewrite(s.body))
        case If():
            return replace(s, then=rewrite(s.then), other=rewrite(s.other))
        case ParallelCall():
            return replace(s, outlined=replace(s.outlined, body=rewrite(s.outlined.body)))
        case _:
            return s


def walk(e: Expr) -> Iterator[Expr]:
    """``e`` and everything inside it, outermost first."""
    yield e
    for operand in operands(e):
        yield from walk(operand)


def statements(body: Sequence[Stmt]) -> Iterator[Stmt]:
    """All statements of a list and of the blocks inside, in program order."""
    for s in body:
        yield s
        for block in blocks(s):
            yield from statements(block)


def mentions(body: Sequence[Stmt], holds: Callable[[Expr], bool]) -> bool:
    """Whether something ``holds`` of any expression in a list."""
    waiting = [e for s in statements(body) for e in statement_expressions(s)]
    while waiting:
        e = waiting.pop()
        if holds(e):
            return True
        waiting += operands(e)
    return False


def names_used(body: Sequence[Stmt]) -> dict[str, None]:
    """Names of symbols, values, registers and buffers mentioned in a list, in program order."""
    found: dict[str, None] = {}
    for s in statements(body):
        for index in statement_indices(s):
            found.update(dict.fromkeys(sorted(symbols(index))))
        match s:
            case Store() | VectorScatter() | Prefetch():
                found[s.buffer] = None
            case Assign():
                found[s.name] = None
            case Check():
                found[FAULTS] = None
            case _:
                pass
        for outer in statement_expressions(s):
            for e in walk(outer):
                found.update(dict.fromkeys(_names_in(e)))
    return found


def _names_in(e: Expr) -> tuple[str, ...]:
    mentioned = tuple(name for index in indices(e) for name in sorted(symbols(index)))
    match e:
        case Var():
            return (e.name, *mentioned)
        case Load() | VectorGather():
            return (e.buffer, *mentioned)
        case _:
            return mentioned


def parallel_loop(function: Function) -> For | None:
    """The function's parallel loop."""
    return next((s for s in function.body if isinstance(s, For) and _is_parallel(s)), None)


def loop_nest(outermost: For) -> tuple[tuple[For, ...], tuple[Stmt, ...]]:
    """Loops of one kind, each all that the one before holds, and the body of the last."""
    loops = [outermost]
    while len(loops[-1].body) == 1:
        (inner,) = loops[-1].body
        if not isinstance(inner, For) or inner.kind != outermost.kind:
            break
        loops.append(inner)
    return tuple(loops), loops[-1].body


def grid_loop(function: Function) -> For | None:
    """The outermost grid loop of a function for accelerators."""
    found = (s for s in function.body if isinstance(s, For) and s.kind == "grid")
    return next(found, None)


def launch_extents(function: Function) -> tuple[tuple[Index, ...], tuple[Index, ...]]:
    """The numbers of groups and of threads in a group, the innermost dimension first."""
    loops = [s for s in statements(function.body) if isinstance(s, For)]
    grid, thread = ([s.stop for s in loops if s.kind == kind] for kind in ("grid", "thread"))
    return tuple(reversed(grid)), tuple(reversed(thread))


def takes_pool(function: Function) -> bool:
    """Whether it takes a thread pool as its last argument."""
    return any(isinstance(s, ParallelCall) or _is_parallel(s) for s in function.body)


def checks_in(function: Function) -> int:
    """How many numbers its checks have: it takes a place for their faults if there are any."""
    found = (s.number + 1 for s in statements(function.body) if isinstance(s, Check))
    return max(found, default=0)


def _is_parallel(s: Stmt) -> bool:
    return isinstance(s, For) and s.kind == "parallel"


def _sides(condition: Condition | None) -> tuple[Index, ...]:
    return () if condition is None else (condition.left, condition.right)


def _present(index: Index | None) -> tuple[Index, ...]:
    return () if index is None else (index,)
