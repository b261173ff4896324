"""Products of fragments by one wave, as functions."""

from __future__ import annotations

from dataclasses import replace

from modelcc.ir.argument import Argument
from modelcc.ir.index import Sym
from modelcc.ir.loop import (
    Alloc,
    Barrier,
    Buffer,
    Convert,
    For,
    Function,
    Load,
    Parameter,
    RoutineCall,
    ScalarCall,
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
    operand_of,
    scale_c,
    store_c,
    sums_of,
)
from modelcc.targets.isa.wave_fragments import WaveLayout

PITCH = 68
"""Of results."""


def own_product(dtype: DType, layout: WaveLayout) -> Function:
    """``z[68 i + j] = 2 (x y)[i, j]`` of operands of 16 bits: threads put their own elements of
    ``x`` into sums, which become the operand, and take those of the sums."""
    whole = wave_product(dtype, F32, (False, False), every=4, wave=layout.wave)
    grid = whole.body[0]
    assert isinstance(grid, For)
    threads = grid.body[-1]
    assert isinstance(threads, For)
    lane, body = Sym("lane"), list(threads.body)
    left = next(n for n, s in enumerate(body) if _is(s, load_a(dtype)))
    places = [layout.element(lane, n) for n in range(layout.own)]
    body[left : left + 1] = [
        *(Store("fc", place, Convert(Load("x", place, dtype), F32)) for place in places),
        RoutineCall(operand_of(dtype), (Argument("fa", 0), Argument("fc", 0))),
        RoutineCall(clear_c(F32), (Argument("fc", 0),)),
    ]
    sums = Load("fc", places[0], F32, layout.own, layout.apart)
    doubled = ScalarCall("add", (sums, sums), F32, layout.own)
    body[-2:] = [Store("fc", places[0], doubled, layout.apart)]
    body += [
        Store("z", PITCH * layout.row(lane) + layout.column(lane, n), Load("fc", place, F32))
        for n, place in enumerate(places)
    ]
    inner = (*grid.body[:-1], replace(threads, body=tuple(body)))
    return replace(whole, body=(replace(grid, body=inner),))


def _is(s: Stmt, routine: Function) -> bool:
    return isinstance(s, RoutineCall) and s.routine == routine


def wave_product(
    dtype: DType,
    to: DType,
    transposed: tuple[bool, bool],
    every: int = 1,
    together: int = 1,
    wave: int = 64,
) -> Function:
    """``z[68 i + every j] = f[i] (x y)[i, every j]`` of one fragment each, of integers without
    ``f``; operands lie as :func:`load_a` and :func:`load_b` say, ``transposed`` or not.  So many
    fragments of terms are multiplied ``together``, by a ``wave`` of so many threads."""
    sums, each = sums_of(dtype), depth(dtype)
    terms = each * together
    size = SIDE * terms
    sizes = (size, size * every)
    shared = [Buffer(name, dtype, n, "shared") for name, n in zip("lr", sizes, strict=True)]
    a, b = (Buffer(name, dtype, size, "warp") for name in ("fa", "fb"))
    c = Buffer("fc", sums, SIDE * SIDE, "warp")
    pitches = SIDE if transposed[0] else terms, terms if transposed[1] else SIDE * every
    total = Argument(c.name, 0)
    body: list[Stmt] = [
        *(Alloc(buffer) for buffer in (a, b, c)),
        *(
            Store(to.name, Sym("lane") * own, Load(source, Sym("lane") * own, dtype, own))
            for to, source, own in zip(shared, "xy", (n // wave for n in sizes), strict=True)
        ),
        Barrier(),
        RoutineCall(clear_c(sums), (total,)),
        *(
            RoutineCall(load, (Argument(f, part * SIDE * each), Argument(m, first)), (pitch,))
            for part in range(together)
            for load, f, m, pitch, first in (
                (
                    load_a(dtype, transposed[0]),
                    "fa",
                    "l",
                    pitches[0],
                    part * each * (pitches[0] if transposed[0] else 1),
                ),
                (
                    load_b(dtype, transposed[1], every),
                    "fb",
                    "r",
                    pitches[1],
                    part * each * (1 if transposed[1] else pitches[1]),
                ),
            )
        ),
        RoutineCall(multiply(dtype, True, together), (total, Argument("fa", 0), Argument("fb", 0))),
    ]
    if sums == F32:
        body.append(RoutineCall(scale_c(), (total, Argument("f", 0))))
    body.append(RoutineCall(store_c(sums, to, every), (Argument("z", 0), total), (PITCH,)))
    parameters = (
        *(Parameter(Buffer(name, dtype, n)) for name, n in zip("xy", sizes, strict=True)),
        Parameter(Buffer("f", F32, SIDE)),
        Parameter(Buffer("z", to, SIDE * PITCH), mutable=True),
    )
    inner = (
        *(Alloc(buffer) for buffer in shared),
        For("lane", 0, wave, tuple(body), kind="thread"),
    )
    return Function("product", parameters, (), (For("g", 0, 1, inner, kind="grid"),))
