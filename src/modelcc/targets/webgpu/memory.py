"""Loads and stores in WGSL.

Elements of fewer than 32 bits are packed in words, as bytes are in memory.  Words that a kernel
writes are atomic: neighbouring elements belong to other threads, and must not change.
"""

from __future__ import annotations

from dataclasses import dataclass

from modelcc.ir.loop import Buffer
from modelcc.ir.types import DType
from modelcc.targets.c.code import CExpression
from modelcc.targets.webgpu.arithmetic import from_bits, to_bits
from modelcc.targets.webgpu.pieces import MemoryPieces
from modelcc.targets.webgpu.values import PAIR, value_type


@dataclass(frozen=True)
class ShaderMemory:
    """A buffer's elements: the variable ``name``, an array of ``element``, which is the type of a
    value unless elements are ``packed`` in words, or words are ``atomic``; or several variables,
    its ``pieces``."""

    name: str
    buffer: Buffer
    element: str
    packed: bool = False
    atomic: bool = False
    pieces: MemoryPieces | None = None

    @property
    def type(self) -> str:
        """The type of the variable's elements."""
        return f"atomic<{self.element}>" if self.atomic else self.element

    def load(self, at: str) -> CExpression:
        """The element at an index."""
        dtype = self.buffer.dtype
        if self.packed:
            word = self._word(at)
            take = "mcc_byte" if dtype.bits == 8 else "mcc_short"
            return from_bits(CExpression(f"{take}({word}, {at})"), dtype)
        place = CExpression(self._element(at))
        return place if self.element == value_type(dtype) else from_bits(place, dtype)

    def store(self, at: str, value: CExpression) -> list[str]:
        """Statements that store ``value`` at an index."""
        dtype = self.buffer.dtype
        if not self.packed:
            own = value if self.element == value_type(dtype) else to_bits(value, dtype)
            if self.pieces is not None:
                return [f"{self.pieces.store}(u32({at}), {own.text});"]
            return [f"{self.name}[{at}] = {own.text};"]
        return [
            "{",
            f"    let shift = {_shift(dtype).format(at)};",
            f"    let bits = {to_bits(value, dtype).inner} << shift;",
            f"    let kept = ~({(1 << dtype.bits) - 1:#x}u << shift);",
            *(f"    {line}" for line in self._merge(_index(at, dtype))),
            "}",
        ]

    def _merge(self, index: str) -> list[str]:
        """Statements that change a word to ``bits``, except its bits of ``kept``."""
        if self.pieces is not None:
            return [f"{self.pieces.store}({index}, bits, kept);"]
        word = f"&{self.name}[{index}]"
        return [f"atomicAnd({word}, kept);", f"atomicOr({word}, bits);"]

    def _element(self, at: str) -> str:
        return f"{self.name}[{at}]" if self.pieces is None else f"{self.pieces.load}(u32({at}))"

    def _word(self, at: str) -> str:
        place = self._element(_index(at, self.buffer.dtype))
        return f"atomicLoad(&{place})" if self.atomic and self.pieces is None else place


def _index(at: str, dtype: DType) -> str:
    return f"u32({at}) >> {2 if dtype.bits == 8 else 1}u"


def _shift(dtype: DType) -> str:
    return "8u * (u32({}) & 3u)" if dtype.bits == 8 else "16u * (u32({}) & 1u)"


def own_room(name: str, buffer: Buffer) -> ShaderMemory:
    """Memory of a thread or a group."""
    return ShaderMemory(name, buffer, value_type(buffer.dtype))


def bound_room(
    name: str, buffer: Buffer, others: tuple[Buffer, ...], mutable: bool
) -> ShaderMemory:
    """A parameter's memory, which it shares with ``others``.

    ``NotImplementedError`` if their elements have other widths.
    """
    types = {value_type(b.dtype) for b in (buffer, *others)}
    if len({b.dtype.bits for b in (buffer, *others)}) > 1:
        names = " and ".join(b.name for b in (buffer, *others))
        raise NotImplementedError(f"elements of {names}, which are one memory, differ in width")
    if buffer.dtype.bits < 32:
        return ShaderMemory(name, buffer, "u32", packed=True, atomic=mutable)
    if buffer.dtype.bits == 64:
        return ShaderMemory(name, buffer, PAIR)
    return ShaderMemory(name, buffer, types.pop() if len(types) == 1 else "u32")
