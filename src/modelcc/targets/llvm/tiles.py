"""Box copies by TMA, arrival barriers (mbarrier), and ``wgmma``, in LLVM IR for NVIDIA's sm_90a."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from modelcc.ir.errors import ModelError
from modelcc.ir.index import Index, Sym, mod
from modelcc.ir.loop import Alloc, For, RoutineCall, TakeTurns
from modelcc.ir.loop_text import statement_text
from modelcc.ir.loop_traversal import statements
from modelcc.ir.tiles import CopyTile, ExpectBytes, WaitArrival, WaitRoutines
from modelcc.ir.types import F32
from modelcc.targets.isa.nvidia_mma import MatrixClear, MatrixStore
from modelcc.targets.isa.nvidia_wgmma import (
    WARP_GROUP,
    TileMultiply,
    TileOperand,
    TurnedStore,
    own_column,
    own_row,
)
from modelcc.targets.isa.tile_products import DEPTH_BYTES
from modelcc.targets.llvm.code import Code
from modelcc.targets.llvm.expressions import ExpressionCode
from modelcc.targets.llvm.warp import WarpCode

MAP_BYTES = 128
"""Bytes of a tensor map."""

MAPS = "_maps"
"""Suffix of a text besides a kernel that lists its tensor maps."""

MOST_ALONG = 256
MOST_AXES = 5
"""Elements of a box along an axis, and axes of a tensor."""

ALIGNMENT = 1024
"""Alignment of swizzled tiles, in bytes."""

BOUNDARY = 16
"""Alignment of rows of tensors, in bytes."""

_INIT = (
    "{ .reg .pred first; setp.eq.u32 first, $1, 0; @first mbarrier.init.shared::cta.b64 [$0], 1; }"
)
_EXPECT = "mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], $1;"
_BARRIERS = 16
"""Named barriers of a group."""
_TWO_WARPS = "i32", str(2 * WARP_GROUP)
_TAKE, _PASS = "bar.sync $0, $1;", "bar.arrive $0, $1;"
_PASS_FIRST = "{ .reg .pred last; setp.eq.u32 last, $2, 0; @last bar.arrive $0, $1; }"
_WAIT = (
    "{ .reg .pred done; again: mbarrier.try_wait.parity.shared::cta.b64 done, [$0], $1; "
    "@!done bra again; }"
)
_COPY = "cp.async.bulk.tensor.{}d.shared::cluster.global.mbarrier::complete_tx::bytes"
_ROWS_EACH = 4
"""Registers of an instruction whose rows are no tile."""

_FENCE = "wgmma.fence.sync.aligned;"
_COMMIT = "wgmma.commit_group.sync.aligned;"


class TileCode:
    """Emits box copies and products of tiles into ``code``."""

    def __init__(self, code: Code, warp: WarpCode, expressions: ExpressionCode) -> None:
        self._code = code
        self._warp = warp
        self._expressions = expressions
        self._index = expressions.index
        self._counting: list[Alloc] = []
        self._threads: list[str] = []
        self._counts: list[Index] = []

    # --- copies

    def count(self, s: Alloc) -> None:
        """Memory of arrival barriers."""
        self._counting.append(s)

    def begin(self, s: For) -> bool:
        """A loop; whether its threads have to synchronise, since one has initialised barriers."""
        if s.kind != "thread":
            return False
        self._threads.append(s.variable)
        self._counts.append(s.stop)
        innermost = not any(isinstance(inner, For) and inner.kind == "thread" for inner in s.body)
        if not innermost or not self._counting:
            return False
        number = "0"
        for name in self._threads:
            number = self._code.emit(f"or i64 {number}, {self._index.operand(Sym(name))}", "all")
        number = self._code.emit(f"trunc i64 {number} to i32", "all")
        for alloc in self._counting:
            assert isinstance(alloc.buffer.size, int)
            for slot in range(alloc.buffer.size):
                self._effect(_INIT, "r,r", [("i32", self._shared(alloc.buffer.name, slot)),
                                            ("i32", number)])  # fmt: skip
        self._effect("fence.proxy.async.shared::cta;", "", [])
        if any(isinstance(inner, TakeTurns) for inner in statements(s.body)):
            self._pass_first()
        return True

    def copying(self, s: CopyTile | ExpectBytes | WaitArrival) -> None:
        """A copy of a box, or the start or end of a phase."""
        arrival = "i32", self._shared(s.arrivals, s.slot)
        match s:
            case ExpectBytes():
                self._effect(_EXPECT, "r,r", [arrival, ("i32", str(s.size))])
            case WaitArrival():
                phase = self._code.emit(f"and i64 {self._index.operand(s.phase)}, 1", "phase")
                phase = self._code.emit(f"trunc i64 {phase} to i32", "phase")
                self._effect(_WAIT, "r,r", [arrival, ("i32", phase)])
            case CopyTile():
                self._copy(s, arrival)

    # --- warpgroups in turns

    def copies(self) -> str:
        """Whether the thread is the first one of the last warpgroup."""
        warps_after = self._warps() - 1 - Sym(self._threads[0])
        number = self._index.operand(WARP_GROUP * warps_after + self._code.lane_index)
        return self._code.emit(f"icmp eq i64 {number}, 0", "one")

    def take_turn(self) -> None:
        """Waits until the previous warpgroup has passed its turn (the first one waits for the last
        one).

        Each warpgroup has a named barrier, where it waits and the previous one arrives.  Barrier 0
        is the group's."""
        self._effect(_TAKE, "r,n", [("i32", self._turn(0)), _TWO_WARPS])

    def pass_turn(self) -> None:
        """Passes the turn to the next warpgroup."""
        self._effect(_PASS, "r,n", [("i32", self._turn(1)), _TWO_WARPS])

    def _pass_first(self) -> None:
        """The last warpgroup passes a turn that it has not had, so that the first one begins."""
        warps_after = self._number(self._warps() - 1 - Sym(self._threads[0]))
        self._effect(_PASS_FIRST, "n,n,r", [("i32", "1"), _TWO_WARPS, ("i32", warps_after)])

    def _turn(self, further: int) -> str:
        return self._number(1 + mod(Sym(self._threads[0]) + further, self._warps()))

    def _warps(self) -> int:
        """Warpgroups of a group, which are several, in a row."""
        count = self._counts[0]
        row = len(self._counts) == 2 and self._code.warp == WARP_GROUP
        if not row or not isinstance(count, int) or not 1 < count < _BARRIERS:
            raise NotImplementedError(f"@{self._code.name}: several warps take turns, in a row")
        return count

    def _copy(self, s: CopyTile, arrival: tuple[str, str]) -> None:
        buffer = self._expressions.memory.buffer(s.to)[1]
        each = buffer.dtype.bytes
        aligned = buffer.align % ALIGNMENT == 0 == self._index.divisor(s.to_offset) * each % 1024
        fits = len(s.box) <= MOST_AXES and max(s.box) <= MOST_ALONG
        if not (aligned and fits and s.box[-1] * each == DEPTH_BYTES and len(s.box) > 1):
            raise ModelError(
                f"boxes of 2 to {MOST_AXES} axes, up to {MOST_ALONG} long, are copied, in rows of "
                f"{DEPTH_BYTES} bytes, to multiples of {ALIGNMENT} bytes",
                (f"@{self._code.name}", statement_text(s)),
            )
        source = self._expressions.memory.buffer(s.source)[1]
        known = [
            source.align,
            *(self._index.divisor(n) * each for n in (s.offset, *s.strides[:-1])),
        ]
        if gcd(*known) % BOUNDARY:
            raise ModelError(
                f"%{s.source} is not known to have rows on boundaries of {BOUNDARY} bytes",
                (f"@{self._code.name}", statement_text(s)),
            )
        rank = len(s.box)
        places = [self._number(place) for place in reversed(s.at)]
        along = ", ".join(f"${2 + axis}" for axis in range(rank))
        text = f"{_COPY.format(rank)} [$0], [$1, {{{along}}}], [${2 + rank}];"
        tensor = self._code.emit(f"ptrtoint ptr {self._code.maps[s.map]} to i64", "map")
        given = [
            ("i32", self._shared(s.to, s.to_offset)),
            ("i64", tensor),
            *(("i32", place) for place in places),
            arrival,
        ]
        self._effect(text, ",".join(["r", "l", *["r"] * rank, "r"]), given)

    def _number(self, index: Index) -> str:
        return self._code.emit(f"trunc i64 {self._index.operand(index)} to i32", "at")

    def _shared(self, buffer: str, offset: Index) -> str:
        """A 32-bit address of shared memory."""
        each = self._expressions.memory.buffer(buffer)[1].dtype.bytes
        pointer = self._code.shared[buffer]
        first = self._code.emit(f"ptrtoint ptr addrspace(3) {pointer} to i32", "address")
        further = self._number(offset * each)
        return self._code.emit(f"add i32 {first}, {further}", "address")

    # --- products

    def call(self, s: RoutineCall) -> bool:
        """A routine of 128 threads; whether it is one."""
        assert self._code.groups is not None
        kind = self._code.groups.tiles.get(s.routine)
        if kind is None:
            return False
        if self._code.warp != WARP_GROUP or isinstance(kind, TileMultiply) != s.beside:
            raise NotImplementedError(
                f"{WARP_GROUP} threads multiply tiles together, and beside: '{statement_text(s)}'"
            )
        match kind:
            case MatrixClear():
                self._warp.clear(s)
            case MatrixStore():
                self._warp.store(s)
            case TurnedStore():
                self._store_turned(s)
            case TileMultiply():
                self._multiply(s, kind)
        return True

    def _store_turned(self, s: RoutineCall) -> None:
        """Of 8 columns, a thread holds two, in two rows."""
        (stride,), to = s.sizes, s.arguments[0]
        values = iter(self._warp.read(s, 1, "float", 4))
        lane = self._code.lane_index
        row, column = own_row(lane), own_column(lane)
        for below in (0, 8):
            for beside in (0, 1):
                at = to.offset + stride * (column + beside) + row + below
                pointer = self._expressions.memory.address(to.buffer, at)
                self._code.effect(f"store float {next(values)}, ptr {pointer}, align 4")

    def _multiply(self, s: RoutineCall, kind: TileMultiply) -> None:
        registers = s.routine.parameters[0].buffer.size
        assert isinstance(registers, int)
        count = registers // WARP_GROUP
        rows, columns = s.arguments[1:]
        right = self._described(columns.buffer, columns.offset, kind.b)
        sums = ", ".join(f"${n}" for n in range(count))
        lines: list[str] = []
        given: list[tuple[str, str]] = []
        left = self._rows(s, kind) if kind.a is None else []
        first = "" if kind.a is None else self._described(rows.buffer, rows.offset, kind.a)
        for number in range(kind.instructions):
            if kind.a is None:
                taken, turned = left[_ROWS_EACH * number :][:_ROWS_EACH], ()
            else:
                step = f"add i64 {first}, {number * kind.a.step}"
                taken = [("i64", self._code.emit(step, "tile"))]
                turned = (kind.a.transposed,)
            names = ", ".join(f"${count + len(given) + n}" for n in range(len(taken)))
            a = f"{{{names}}}" if kind.a is None else names
            step = self._code.emit(f"add i64 {right}, {number * kind.b.step}", "tile")
            given += [*taken, ("i64", step)]
            turned = (*turned, kind.b.transposed) if kind.turned else ()
            transposed = "".join(f", {int(one)}" for one in turned)
            b = f"${count + len(given) - 1}"
            lines.append(f"{kind.mnemonic} {{{sums}}}, {a}, {b}, 1, 1, 1{transposed};")
        text = " ".join((_FENCE, *lines, _COMMIT))
        values = self._warp.read(s, 0, "float", count)
        found = self._tied(text, values, given)
        self._warp.write(s, 0, "float", found)

    def _rows(self, s: RoutineCall, kind: TileMultiply) -> list[tuple[str, str]]:
        """Registers of rows that are a fragment, pairs of neighbours as bits."""
        count = _ROWS_EACH * kind.instructions
        return [
            ("i32", self._code.emit(f"bitcast <2 x i16> {pair} to i32", "rows"))
            for pair in self._warp.read(s, 1, "<2 x i16>", count)
        ]

    def _described(self, buffer: str, offset: Index, operand: TileOperand) -> str:
        address = self._shared(buffer, offset)
        unit = self._code.emit(f"lshr i32 {address}, 4", "unit")
        unit = self._code.emit(f"and i32 {unit}, 16383", "unit")
        wide = self._code.emit(f"zext i32 {unit} to i64", "unit")
        return self._code.emit(f"or i64 {wide}, {operand.bits}", "tile")

    def wait(self, s: WaitRoutines) -> None:
        """Waits for products: LLVM sees sums change here; operands stay."""
        slots = self._warp.slots_of(F32)
        values = [self._code.emit(f"load float, ptr {slot}", "r") for slot in slots]
        found = self._tied(f"wgmma.wait_group.sync.aligned {s.pending};", values, [])
        for slot, value in zip(slots, found, strict=True):
            self._code.effect(f"store float {value}, ptr {slot}")

    # --- assembly: convergent, so that LLVM does not move it to divergent code

    def _effect(self, text: str, constraints: str, given: Sequence[tuple[str, str]]) -> None:
        taken = ", ".join(map(" ".join, given))
        clobbered = ",".join([*([constraints] if constraints else []), "~{memory}"])
        self._code.effect(f'call void asm sideeffect "{text}", "{clobbered}"({taken}) convergent')

    def _tied(
        self, text: str, values: Sequence[str], given: Sequence[tuple[str, str]]
    ) -> list[str]:
        """Assembly that changes ``values`` in place."""
        count = len(values)
        type_ = f"{{ {', '.join(['float'] * count)} }}"
        outputs, ties = ["=f"] * count, [str(n) for n in range(count)]
        letters = ("r" if type_ == "i32" else "l" for type_, _ in given)
        operands = ",".join([*outputs, *letters, *ties, "~{memory}"])
        taken = ", ".join(map(" ".join, [*given, *(("float", value) for value in values)]))
        call = f'call {type_} asm sideeffect "{text}", "{operands}"({taken}) convergent'
        return self._warp.fields(self._code.emit(call, "sums"), type_, count)
