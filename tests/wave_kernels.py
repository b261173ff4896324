"""Products of fragments by one wave, as functions."""

from __future__ import annotations

from dataclasses import replace

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
    ScalarCall,
    Stmt,
    Store,
)
from modelcc.ir.types import F32, DType
from modelcc.targets.isa.amd_mfma import OWN, own_column, own_element, own_row
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
PITCH = 68
"""Of results."""


def own_product(dtype: DType) -> Function:
    """``z[68 i + j] = 2 (x y)[i, j]`` of operands of 16 bits: threads put their own elements of
    ``x`` into the fragment, and take those of the sums."""
    whole = wave_product(dtype, F32, (False, False), every=4)
    grid = whole.body[0]
    assert isinstance(grid, For)
    threads = grid.body[-1]
    assert isinstance(threads, For)
    lane, body = Sym("lane"), list(threads.body)
    first, left = own_element(lane), next(n for n, s in enumerate(body) if _is(s, load_a(dtype)))
    body[left : left + 1] = [
        Store("fa", first + n, Load("x", first + n, dtype)) for n in range(OWN)
    ]
    sums = Load("fc", first, F32, OWN)
    doubled = ScalarCall("add", (sums, sums), F32, OWN)
    at = PITCH * own_row(lane) + own_column(lane)
    body[-2:] = [Store("fc", first, doubled)]
    body += [Store("z", at + n, Load("fc", first + n, F32)) for n in range(OWN)]
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
) -> Function:
    """``z[68 i + every j] = f[i] (x y)[i, every j]`` of one fragment each, of integers without
    ``f``; operands lie as :func:`load_a` and :func:`load_b` say, ``transposed`` or not.  So many
    fragments of terms are multiplied ``together``."""
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
            for to, source, own in zip(shared, "xy", (n // WAVE for n in sizes), strict=True)
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
        For("lane", 0, WAVE, tuple(body), kind="thread"),
    )
    return Function("product", parameters, (), (For("g", 0, 1, inner, kind="grid"),))
