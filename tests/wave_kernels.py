"""Products of fragments by one wave, as functions."""

from __future__ import annotations

from modelcc.ir.argument import Argument
from modelcc.ir.index import Sym
from modelcc.ir.loop import (
    Alloc,
    Barrier,
    Buffer,
    For,
    Function,
    Load,
    Parameter,
    RoutineCall,
    Stmt,
    Store,
)
from modelcc.ir.types import F32, DType
from modelcc.targets.isa.fragments import (
    SIDE,
    clear_c,
    depth,
    load_a,
    load_b,
    multiply,
    scale_c,
    store_c,
    sums_of,
)

WAVE = 64
PITCH = 20
"""Of results."""


def wave_product(dtype: DType, to: DType, transposed: tuple[bool, bool]) -> Function:
    """``z[20 i + j] = f[i] (x y)[i, j]`` of one fragment each, of integers without ``f``; operands
    lie as :func:`load_a` and :func:`load_b` say, ``transposed`` or not."""
    sums, terms = sums_of(dtype), depth(dtype)
    size, own = SIDE * terms, SIDE * terms // WAVE
    lane = Sym("lane") * own
    shared = [Buffer(name, dtype, size, "shared") for name in ("l", "r")]
    a, b = (Buffer(name, dtype, size, "warp") for name in ("fa", "fb"))
    c = Buffer("fc", sums, SIDE * SIDE, "warp")
    pitches = [SIDE if t else terms for t in (transposed[0], not transposed[1])]
    total = Argument(c.name, 0)
    body: list[Stmt] = [
        *(Alloc(buffer) for buffer in (a, b, c)),
        *(
            Store(to.name, lane, Load(source, lane, dtype, own))
            for to, source in zip(shared, "xy", strict=True)
        ),
        Barrier(),
        RoutineCall(clear_c(sums), (total,)),
        RoutineCall(
            load_a(dtype, transposed[0]), (Argument("fa", 0), Argument("l", 0)), (pitches[0],)
        ),
        RoutineCall(
            load_b(dtype, transposed[1]), (Argument("fb", 0), Argument("r", 0)), (pitches[1],)
        ),
        RoutineCall(multiply(dtype), (total, Argument("fa", 0), Argument("fb", 0))),
    ]
    if sums == F32:
        body.append(RoutineCall(scale_c(), (total, Argument("f", 0))))
    body.append(RoutineCall(store_c(sums, to), (Argument("z", 0), total), (PITCH,)))
    parameters = (
        *(Parameter(Buffer(name, dtype, size)) for name in "xy"),
        Parameter(Buffer("f", F32, SIDE)),
        Parameter(Buffer("z", to, SIDE * PITCH), mutable=True),
    )
    inner = (
        *(Alloc(buffer) for buffer in shared),
        For("lane", 0, WAVE, tuple(body), kind="thread"),
    )
    return Function("product", parameters, (), (For("g", 0, 1, inner, kind="grid"),))
