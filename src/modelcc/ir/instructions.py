"""Semantics of instructions: as loop functions, and as arithmetic on vectors.

``dot4`` adds the products of four unsigned and four signed bytes to each lane.  As a function,
the form in which its text precedes functions that use it::

    instruction @dot4(%a: u8[4*n], %b: i8[4*n], %c: i32[n], %result: mut i32[n]; n) {
      for l in 0 .. n {
        store %result[l] = muladd(convert[i32](load %a[4*l + 3]), convert[i32](…), muladd(…))
      }
    }
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from modelcc.ir.index import Sym, coefficient, evaluate, symbols
from modelcc.ir.loop import (
    Bitcast,
    Buffer,
    Const,
    Convert,
    Expr,
    For,
    Function,
    Instruction,
    InstructionOperand,
    Intrinsic,
    Load,
    MulAdd,
    Parameter,
    ScalarCall,
    Select,
    Shuffle,
    Splat,
    Stmt,
    Store,
    Var,
)
from modelcc.ir.loop_traversal import (
    operands,
    routines_in,
    statement_expressions,
    statements,
    walk,
    with_operands,
)
from modelcc.ir.loop_typing import type_fault
from modelcc.ir.op import ModelError
from modelcc.ir.types import BF16, F32, I8, I32, U8, DType

LANE, LANES = Sym("l"), Sym("n")
"""The lane of a definition, and the number of lanes."""

RESULT = "result"
"""The buffer that an instruction's function writes."""

ROUGH = "rough "
"""Prefix of the text of an instruction that is not exact."""


def instruction_function(instruction: Instruction) -> Function:
    """The loop over the lanes of a result."""
    buffers = [Buffer(o.name, o.dtype, LANES * o.each) for o in instruction.operands]
    result = Parameter(Buffer(RESULT, instruction.dtype, LANES), mutable=True)
    loop = For("l", 0, LANES, (Store(RESULT, LANE, instruction.meaning),))
    return Function(instruction.name, (*map(Parameter, buffers), result), ("n",), (loop,))


def instruction_of(function: Function) -> Instruction:
    """The instruction with this :func:`instruction_function`.

    :class:`ModelError` if the function has another form, or does not define its result.
    """
    place = (f"@{function.name}",)
    match function.body:
        case (For(body=(Store(buffer="result", value=meaning),)),):
            pass
        case _:
            raise ModelError("an instruction is a loop over the lanes of its %result", place)
    taken = [p.buffer for p in function.parameters if p.buffer.name != RESULT]
    each = (coefficient(b.size, "n") for b in taken)
    counts = (n if isinstance(n, int) else 0 for n in each)
    found = (InstructionOperand(b.name, b.dtype, n) for b, n in zip(taken, counts, strict=True))
    instruction = Instruction(function.name, tuple(found), meaning)
    if instruction_function(instruction) != function:
        raise ModelError("an instruction takes so many elements for each lane of n", place)
    return instruction


def vectors(e: Intrinsic) -> Expr:
    """``e`` as arithmetic on its arguments, each of which is duplicated several times."""
    shapes = zip(e.instruction.operands, e.args, strict=True)
    given = {o.name: (arg, o.each) for o, arg in shapes}
    return _lanes(e.instruction.meaning, given, e.lanes)


def _lanes(e: Expr, given: Mapping[str, tuple[Expr, int]], lanes: int) -> Expr:
    match e:
        case Load():
            arg, each = given[e.buffer]
            places = tuple(evaluate(e.offset, {"l": lane}) for lane in range(lanes))
            return _elements(arg, places, lanes * each)
        case Const():
            return replace(e, lanes=lanes)
        case ScalarCall():
            return replace(e, args=tuple(_lanes(a, given, lanes) for a in e.args), lanes=lanes)
        case _:
            return with_operands(e, [_lanes(o, given, lanes) for o in operands(e)])


def _elements(arg: Expr, places: tuple[int, ...], size: int) -> Expr:
    """These elements of an argument, which has ``size`` elements or is broadcast."""
    if arg.lanes < size:
        places = tuple(place % arg.lanes for place in places)
    if places == tuple(range(arg.lanes)):
        return arg
    return Splat(arg, len(places)) if arg.lanes == 1 else Shuffle(arg, arg, places)


def meaning_fault(instruction: Instruction, lanes: int) -> str:
    """Why an instruction is undefined for ``lanes`` lanes; "" if it is defined."""
    name, taken = instruction.name, {o.name: o for o in instruction.operands}
    for e in walk(instruction.meaning):
        if not isinstance(e, Load | Const | ScalarCall | MulAdd | Select | Convert | Bitcast):
            return f"what {name} means cannot be said by {type(e).__name__}"
        if isinstance(e, Load) and (e.buffer not in taken or taken[e.buffer].dtype != e.dtype):
            return f"{name} has no operand %{e.buffer} of {e.dtype}"
        if isinstance(e, Load) and symbols(e.offset) - symbols(LANE):
            return f"element {e.offset} of %{e.buffer} depends on more than the lane of {name}"
        if isinstance(e, Load):
            size = taken[e.buffer].each * lanes
            if not all(0 <= evaluate(e.offset, {"l": lane}) < size for lane in range(lanes)):
                return f"{name} reads %{e.buffer}[{e.offset}], beyond its {size} elements"
    args = tuple(Var(o.name, o.dtype, o.each * lanes) for o in instruction.operands)
    whole = vectors(Intrinsic(instruction, args))
    faults = (type_fault(e, operands(e)) for e in walk(whole))
    return next((f"what {name} means: {fault}" for fault in faults if fault), "")


def instructions_in(body: Sequence[Stmt]) -> tuple[Instruction, ...]:
    """Instructions that statements and their callees use, by first use."""
    every = (*(s for r in routines_in(body) for s in statements(r.body)), *statements(body))
    found = (e for s in every for whole in statement_expressions(s) for e in walk(whole))
    return tuple(dict.fromkeys(e.instruction for e in found if isinstance(e, Intrinsic)))


def dot_product(
    name: str, left: DType, right: DType, sums: DType, steps: Sequence[int]
) -> Instruction:
    """``c[l]`` plus the products of ``a`` and ``b`` at ``len(steps)`` contiguous elements, added
    in the order of ``steps``, each with one rounding."""
    count = len(steps)
    total: Expr = Load("c", LANE, sums)
    for step in steps:
        at = LANE * count + step
        a, b = Load("a", at, left), Load("b", at, right)
        total = MulAdd(Convert(a, sums), Convert(b, sums), total)
    taken = (
        InstructionOperand("a", left, count),
        InstructionOperand("b", right, count),
        InstructionOperand("c", sums),
    )
    return Instruction(name, taken, total)


DOT4 = dot_product("dot4", U8, I8, I32, range(4))
"""On bytes, as used by the schedules of every processor: modulo 2**32."""

DOT2 = dot_product("vdpbf16ps", BF16, BF16, F32, (1, 0))
"""On bf16, odd elements first."""
