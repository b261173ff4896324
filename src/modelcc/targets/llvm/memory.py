"""Loads and stores: contiguous, broadcast, strided and gathered, with inactive lanes masked off.

Bools are bytes in memory and ``i1`` in registers.
"""

from __future__ import annotations

from math import gcd

from modelcc.ir.index import Index
from modelcc.ir.loop import Buffer
from modelcc.ir.types import BOOL, DType
from modelcc.targets.isa import nvidia_mma
from modelcc.targets.isa.nvidia_wgmma import WARP_GROUP, own_byte
from modelcc.targets.isa.tile_products import ROWS
from modelcc.targets.isa.wave_fragments import WaveLayout
from modelcc.targets.llvm import interleaved
from modelcc.targets.llvm.code import Code
from modelcc.targets.llvm.indices import IndexCode
from modelcc.targets.llvm.values import integers, mangled, memory_type, value_type, vector_of


class MemoryCode:
    """Emits memory accesses into ``code``."""

    def __init__(self, code: Code, index: IndexCode) -> None:
        self._code = code
        self._index = index

    def buffer(self, name: str) -> tuple[str, Buffer]:
        """Address operand and declaration of a visible buffer."""
        for scope in reversed(self._code.scopes):
            if name in scope.buffers:
                return scope.buffers[name]
        raise KeyError(f"buffer '{name}' is not declared here")

    def address(self, name: str, offset: Index) -> str:
        """Address of an element; offsets that differ by a number share the rest."""
        pointer, buffer = self.buffer(name)
        offset = self._index.resolved(offset)
        if buffer.space == "warp":
            return self._own(pointer, buffer, offset)
        element = memory_type(buffer.dtype)
        const = offset if isinstance(offset, int) else offset.const
        if not isinstance(offset, int):
            bound = "" if const else " inbounds"
            pointer = self._moved(pointer, element, offset - const, bound)
        if not const:
            return pointer
        return self._moved(pointer, element, const, " inbounds" if const == offset else "")

    def _own(self, pointer: str, buffer: Buffer, offset: Index) -> str:
        """The address of a fragment element in the registers of the thread that holds it."""
        place, layout, lane = None, self._wave, self._code.lane_index
        if self._code.warp == WARP_GROUP:
            place = own_byte(offset, lane, buffer.dtype)
        elif layout is not None:
            place = layout.byte(offset, lane) if buffer.dtype.bits == 32 else None
        elif self._code.warp == nvidia_mma.WARP:
            place = nvidia_mma.own_byte(offset, lane, buffer.dtype)
        if place is None:
            raise NotImplementedError(
                f"element {offset} of the fragment %{buffer.name} is not known to be a thread's own"
            )
        return self._code.emit(f"getelementptr inbounds i8, ptr {pointer}, i64 {place}", "own")

    def _apart(self, buffer: Buffer, stride: Index) -> Index:
        """The stride of lanes in registers: columns of a fragment are neighbours."""
        stride = self._index.resolved(stride)
        apart = ROWS if self._wave is None else self._wave.apart
        return 1 if buffer.space == "warp" and stride == apart else stride

    @property
    def _wave(self) -> WaveLayout | None:
        """The distribution of fragments over a wave's threads."""
        waves = self._code.groups and self._code.groups.waves
        return waves.layout if waves and waves.layout.wave == self._code.warp else None

    def load(
        self, name: str, offset: Index, lanes: int, stride: Index = 1, active: Index | None = None
    ) -> str:
        """Lane l is element ``offset + l*stride``; lanes from ``active`` on are 0."""
        buffer = self.buffer(name)[1]
        stride = self._apart(buffer, stride)
        mask = self.mask(active, lanes, buffer.dtype)
        if mask is None and (stride == 0 or lanes == 1):
            return self._splat(self._plain_load(name, offset, 1), buffer.dtype, lanes)
        if stride == 1 or lanes == 1:
            return self._contiguous(name, offset, lanes, mask)
        if mask is None and isinstance(stride, int) and 1 < stride <= interleaved.WIDEST:
            return self._every(name, offset, stride, lanes)
        addresses = self._strided(name, offset, stride, lanes)
        return self._gathered(addresses, buffer.dtype, lanes, mask)

    def _every(self, name: str, offset: Index, stride: int, lanes: int) -> str:
        """Every ``stride``-th element, picked from loads of neighbours."""
        type_ = value_type(self.buffer(name)[1].dtype, lanes)
        first, *others = (
            self._plain_load(name, offset + start, lanes)
            for start in interleaved.starts(lanes, stride)
        )
        for other, places in zip(others, interleaved.shuffles(lanes, stride), strict=True):
            chosen = ", ".join(f"i32 {p}" if p >= 0 else "i32 poison" for p in places)
            operands = f"{type_} {first}, {type_} {other}, <{lanes} x i32> <{chosen}>"
            first = self._code.emit(f"shufflevector {operands}", "every")
        return first

    def gather(
        self, name: str, offset: Index, offsets: str, kind: DType, lanes: int, active: Index | None
    ) -> str:
        """Lane l is element ``offset + offsets[l]``."""
        buffer = self.buffer(name)[1]
        mask = self.mask(active, lanes, buffer.dtype)
        if mask is None and lanes > 1 and kind.bits == 64:
            return self._one_by_one(name, offset, offsets, kind, lanes)
        addresses = self.addresses(name, offset, offsets, kind, lanes)
        if lanes == 1:
            return self._loaded_if(mask, addresses, buffer.dtype)
        return self._gathered(addresses, buffer.dtype, lanes, mask)

    def store(
        self,
        name: str,
        offset: Index,
        value: str,
        lanes: int,
        stride: Index = 1,
        active: Index | None = None,
    ) -> None:
        """Element ``offset + l*stride`` becomes lane l; lanes from ``active`` on are kept."""
        buffer = self.buffer(name)[1]
        dtype, stride = buffer.dtype, self._apart(buffer, stride)
        mask = self.mask(active, lanes, dtype)
        active = None if active is None else self._index.resolved(active)
        stored = self._to_memory(value, dtype, lanes)
        if mask is not None and lanes > 1 and stride == 1 and isinstance(active, int):
            self._store_first(name, offset, stored, lanes, active)
        elif stride == 1 or lanes == 1:
            self._store_contiguous(name, offset, stored, lanes, mask)
        else:
            self._scattered(self._strided(name, offset, stride, lanes), stored, dtype, lanes, mask)

    def scatter(
        self,
        name: str,
        offset: Index,
        offsets: str,
        kind: DType,
        value: str,
        lanes: int,
        active: Index | None,
    ) -> None:
        """Element ``offset + offsets[l]`` becomes lane l."""
        dtype = self.buffer(name)[1].dtype
        mask = self.mask(active, lanes, dtype)
        stored = self._to_memory(value, dtype, lanes)
        addresses = self.addresses(name, offset, offsets, kind, lanes)
        if lanes == 1:
            self._store_if(mask, addresses, stored, dtype)
        else:
            self._scattered(addresses, stored, dtype, lanes, mask)

    def addresses(self, name: str, offset: Index, offsets: str, kind: DType, lanes: int) -> str:
        """Vector of addresses ``offset + offsets[l]`` from the buffer's start."""
        base = self.address(name, offset)
        element = memory_type(self.buffer(name)[1].dtype)
        type_ = value_type(kind, lanes)
        if kind.kind == "uint" and kind.bits < 64:
            wide = vector_of("i64", lanes)
            offsets = self._code.emit(f"zext {type_} {offsets} to {wide}", "o")
            type_ = wide
        return self._code.emit(f"getelementptr {element}, ptr {base}, {type_} {offsets}", "p")

    def mask(self, active: Index | None, lanes: int, dtype: DType) -> str | None:
        """``<lanes x i1>``, true below ``active``; None where all lanes are known to be active."""
        if active is None:
            return None
        active = self._index.resolved(active)
        if self._index.at_least(active, lanes):
            return None
        if lanes == 1:
            return self._code.emit(f"icmp sgt i64 {self._index.operand(active)}, 0", "mask")
        if isinstance(active, int):
            bits = ("true" if lane < active else "false" for lane in range(lanes))
            return f"<{', '.join(f'i1 {bit}' for bit in bits)}>"
        key = f"mask {lanes} {dtype.bytes} {active}"
        found = self._code.cached(key)
        if found is None:
            found = self._code.scope.cache[key] = self._computed_mask(active, lanes, dtype)
        return found

    def _computed_mask(self, active: Index, lanes: int, dtype: DType) -> str:
        # Clamping first lets the comparison run on elements as narrow as the data.
        emit, operand = self._code.emit, self._index.operand(active)
        least = self._code.intrinsic("i64", "llvm.smin.i64", "i64, i64")
        operand = emit(f"call {least}(i64 {operand}, i64 {lanes})", "active")
        if not self._index.at_least(active, 0):
            most = self._code.intrinsic("i64", "llvm.smax.i64", "i64, i64")
            operand = emit(f"call {most}(i64 {operand}, i64 0)", "active")
        element = f"i{8 * dtype.bytes if lanes < 128 else 64}"
        if element != "i64":
            operand = emit(f"trunc i64 {operand} to {element}", "active")
        limit = self.broadcast(operand, element, lanes)
        type_ = vector_of(element, lanes)
        return emit(f"icmp ult {type_} {integers(range(lanes), element)}, {limit}", "mask")

    def broadcast(self, operand: str, element: str, lanes: int) -> str:
        """A scalar in every lane."""
        type_ = vector_of(element, lanes)
        one = self._code.emit(f"insertelement {type_} poison, {element} {operand}, i64 0", "one")
        zeros = f"<{lanes} x i32> zeroinitializer"
        return self._code.emit(f"shufflevector {type_} {one}, {type_} poison, {zeros}", "all")

    def _moved(self, pointer: str, element: str, by: Index, flag: str) -> str:
        key = f"address {pointer} {element} {by}"
        found = self._code.cached(key)
        if found is None:
            operand = self._index.operand(by)
            found = self._code.emit(
                f"getelementptr{flag} {element}, ptr {pointer}, i64 {operand}", "p"
            )
            self._code.scope.cache[key] = found
        return found

    def _alignment(self, name: str, offset: Index) -> int:
        buffer = self.buffer(name)[1]
        known = gcd(self._index.divisor(offset) * buffer.dtype.bytes, buffer.align)
        return known & -known

    def _plain_load(self, name: str, offset: Index, lanes: int) -> str:
        buffer = self.buffer(name)[1]
        pointer = self.address(name, offset)
        return self._loaded(pointer, buffer.dtype, lanes, self._alignment(name, offset))

    def _loaded(self, pointer: str, dtype: DType, lanes: int, align: int) -> str:
        type_ = memory_type(dtype, lanes)
        loaded = self._code.emit(f"load {type_}, ptr {pointer}, align {align}", "v")
        return self._from_memory(loaded, dtype, lanes)

    def _contiguous(self, name: str, offset: Index, lanes: int, mask: str | None) -> str:
        if mask is None:
            return self._plain_load(name, offset, lanes)
        dtype = self.buffer(name)[1].dtype
        if lanes == 1:
            return self._loaded_if(mask, self.address(name, offset), dtype)
        type_, masks = memory_type(dtype, lanes), f"<{lanes} x i1>"
        suffix = mangled(memory_type(dtype), lanes)
        callee = self._code.intrinsic(
            type_, f"llvm.masked.load.{suffix}.p0", f"ptr, {masks}, {type_}"
        )
        pointer, align = self.address(name, offset), self._alignment(name, offset)
        loaded = self._code.emit(
            f"call {callee}(ptr align {align} {pointer}, {masks} {mask}, {type_} zeroinitializer)",
            "v",
        )
        return self._from_memory(loaded, dtype, lanes)

    def _loaded_if(self, mask: str | None, pointer: str, dtype: DType) -> str:
        """A scalar that is only read if it is active: reads a zero of our own otherwise."""
        if mask is not None:
            type_ = memory_type(dtype)
            zero = self._code.allocate(type_, "zero")
            self._code.effect(f"store {type_} zeroinitializer, ptr {zero}, align {dtype.bytes}")
            pointer = self._code.emit(f"select i1 {mask}, ptr {pointer}, ptr {zero}", "p")
        return self._loaded(pointer, dtype, 1, dtype.bytes)

    def _store_if(self, mask: str | None, pointer: str, stored: str, dtype: DType) -> None:
        """A scalar that is only written if it is active: written to a slot of our own otherwise."""
        type_ = memory_type(dtype)
        if mask is not None:
            unused = self._code.allocate(type_, "unused")
            pointer = self._code.emit(f"select i1 {mask}, ptr {pointer}, ptr {unused}", "p")
        self._code.effect(f"store {type_} {stored}, ptr {pointer}, align {dtype.bytes}")

    def _store_first(self, name: str, offset: Index, stored: str, lanes: int, active: int) -> None:
        """The first ``active`` lanes, in stores of powers of two.

        A masked store would hold up loads of what is behind it: processors take it to write
        all lanes (softmax of rows of 197 in place on Zen 5: 3.0 instead of 5.1 G elements/s).
        """
        dtype = self.buffer(name)[1].dtype
        whole, start = memory_type(dtype, lanes), 0
        while start < active:
            size = 1 << ((active - start).bit_length() - 1)
            places = ", ".join(f"i32 {start + lane}" for lane in range(size))
            operands = f"{whole} {stored}, {whole} poison, <{size} x i32> <{places}>"
            part = self._code.emit(f"shufflevector {operands}", "part")
            self._store_part(name, offset + start, part, size)
            start += size

    def _store_part(self, name: str, offset: Index, part: str, lanes: int) -> None:
        dtype = self.buffer(name)[1].dtype
        type_ = f"<{lanes} x {memory_type(dtype)}>"
        pointer, align = self.address(name, offset), self._alignment(name, offset)
        self._code.effect(f"store {type_} {part}, ptr {pointer}, align {align}")

    def _store_contiguous(
        self, name: str, offset: Index, stored: str, lanes: int, mask: str | None
    ) -> None:
        dtype = self.buffer(name)[1].dtype
        type_ = memory_type(dtype, lanes)
        pointer, align = self.address(name, offset), self._alignment(name, offset)
        if mask is None:
            self._code.effect(f"store {type_} {stored}, ptr {pointer}, align {align}")
            return
        if lanes == 1:
            self._store_if(mask, pointer, stored, dtype)
            return
        masks, suffix = f"<{lanes} x i1>", mangled(memory_type(dtype), lanes)
        callee = self._code.intrinsic(
            "void", f"llvm.masked.store.{suffix}.p0", f"{type_}, ptr, {masks}"
        )
        self._code.effect(
            f"call {callee}({type_} {stored}, ptr align {align} {pointer}, {masks} {mask})"
        )

    def _strided(self, name: str, offset: Index, stride: Index, lanes: int) -> str:
        base = self.address(name, offset)
        element = memory_type(self.buffer(name)[1].dtype)
        if isinstance(stride, int):
            steps = integers(tuple(lane * stride for lane in range(lanes)), "i64")
        else:
            wide = self.broadcast(self._index.operand(stride), "i64", lanes)
            lane = integers(range(lanes), "i64")
            steps = self._code.emit(f"mul nsw <{lanes} x i64> {wide}, {lane}", "o")
        return self._code.emit(f"getelementptr {element}, ptr {base}, <{lanes} x i64> {steps}", "p")

    def _one_by_one(self, name: str, offset: Index, offsets: str, kind: DType, lanes: int) -> str:
        """Lanes loaded each for itself, as processors do it that have no fast gathers; then their
        offsets, where these are loaded, too, never pass through a vector."""
        dtype, base = self.buffer(name)[1].dtype, self.address(name, offset)
        element, type_ = memory_type(dtype), memory_type(dtype, lanes)
        found = "poison"
        for lane in range(lanes):
            place = f"extractelement {value_type(kind, lanes)} {offsets}, i64 {lane}"
            step = self._code.emit(place, "o")
            at = f"getelementptr {element}, ptr {base}, i64 {step}"
            pointer = self._code.emit(at, "p")
            value = self._code.emit(f"load {element}, ptr {pointer}, align {dtype.bytes}", "v")
            joined = f"insertelement {type_} {found}, {element} {value}, i64 {lane}"
            found = self._code.emit(joined, "v")
        return self._from_memory(found, dtype, lanes)

    def _gathered(self, addresses: str, dtype: DType, lanes: int, mask: str | None) -> str:
        type_, masks, pointers = memory_type(dtype, lanes), f"<{lanes} x i1>", f"<{lanes} x ptr>"
        callee = self._code.intrinsic(
            type_,
            f"llvm.masked.gather.{mangled(memory_type(dtype), lanes)}.v{lanes}p0",
            f"{pointers}, {masks}, {type_}",
        )
        loaded = self._code.emit(
            f"call {callee}({pointers} align {dtype.bytes} {addresses}, "
            f"{masks} {mask or 'splat (i1 true)'}, {type_} zeroinitializer)",
            "v",
        )
        return self._from_memory(loaded, dtype, lanes)

    def _scattered(
        self, addresses: str, stored: str, dtype: DType, lanes: int, mask: str | None
    ) -> None:
        type_, masks, pointers = memory_type(dtype, lanes), f"<{lanes} x i1>", f"<{lanes} x ptr>"
        callee = self._code.intrinsic(
            "void",
            f"llvm.masked.scatter.{mangled(memory_type(dtype), lanes)}.v{lanes}p0",
            f"{type_}, {pointers}, {masks}",
        )
        self._code.effect(
            f"call {callee}({type_} {stored}, {pointers} align {dtype.bytes} {addresses}, "
            f"{masks} {mask or 'splat (i1 true)'})"
        )

    def _splat(self, operand: str, dtype: DType, lanes: int) -> str:
        return operand if lanes == 1 else self.broadcast(operand, value_type(dtype), lanes)

    def _from_memory(self, loaded: str, dtype: DType, lanes: int) -> str:
        if dtype != BOOL:
            return loaded
        zero = "0" if lanes == 1 else "zeroinitializer"
        return self._code.emit(f"icmp ne {memory_type(dtype, lanes)} {loaded}, {zero}", "b")

    def _to_memory(self, value: str, dtype: DType, lanes: int) -> str:
        if dtype != BOOL:
            return value
        types = f"{value_type(dtype, lanes)} {value} to {memory_type(dtype, lanes)}"
        return self._code.emit(f"zext {types}", "b")
