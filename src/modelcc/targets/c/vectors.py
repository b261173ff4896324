"""Inline functions that move vectors: broadcast, contiguous, strided and gathered access.

Those called ``…_first`` access only the first ``active`` elements; loads give 0 for the others.
"""

from __future__ import annotations

from modelcc.ir.types import BOOL, DType
from modelcc.targets.c.prelude import Prelude, each
from modelcc.targets.c.values import constant, memory_type, prefix


class VectorFunctions:
    """Names of inline functions for vectors of ``lanes`` elements, defined in ``prelude``."""

    def __init__(self, prelude: Prelude) -> None:
        self._prelude = prelude

    def splat(self, dtype: DType, lanes: int) -> str:
        """``(element) -> vector``: the same in every lane."""
        v = self._prelude.vector(dtype, lanes)
        return self._prelude.function(
            f"{v}_splat", v, f"{memory_type(dtype)} s",
            lambda: f"return ({v}){each(lanes, lambda _: 's')};",
        )  # fmt: skip

    def splat_mask(self, bits: int, lanes: int) -> str:
        """``(bool) -> mask``: the same in every lane."""
        m = self._prelude.mask(bits, lanes)
        splat = self._prelude.function(
            f"{m}_splat", m, f"int{bits}_t s",
            lambda: f"return ({m}){each(lanes, lambda _: 's')};",
        )  # fmt: skip
        return self._prelude.function(
            f"{m}_mask", m, "bool s", lambda: f"return {splat}((int{bits}_t)-(int)s);"
        )

    def select(self, dtype: DType, lanes: int) -> str:
        """``(mask, vector, vector) -> vector``: the first where the mask is set."""
        v = self._prelude.vector(dtype, lanes)
        m = self._prelude.mask(8 * dtype.bytes, lanes)
        return self._prelude.function(
            f"{v}_select", v, f"{m} mask, {v} a, {v} b",
            lambda: f"return ({v})((mask & ({m})a) | (~mask & ({m})b));",
        )  # fmt: skip

    # --- loads

    def load(self, dtype: DType, lanes: int) -> str:
        """``(pointer) -> vector``; the pointer has the alignment of its elements."""
        v, p = self._prelude.vector(dtype, lanes), self._source(dtype)
        return self._prelude.function(
            f"{v}_load", v, p, lambda: f"return *(const {v}_unaligned *)p;"
        )

    def load_first(self, dtype: DType, lanes: int) -> str:
        """``(pointer, active) -> vector``."""
        v, p = self._prelude.vector(dtype, lanes), self._source(dtype)
        whole = self.load(dtype, lanes)
        return self._prelude.function(
            f"{v}_load_first", v, f"{p}, int64_t active",
            lambda: [
                f"if (active >= {lanes})", f"    return {whole}(p);",
                f"{v} v = {{0}};", "for (int64_t l = 0; l < active; l++)", "    v[l] = p[l];",
                "return v;",
            ],
        )  # fmt: skip

    def load_strided(self, dtype: DType, lanes: int, masked: bool) -> str:
        """``(pointer, stride[, active]) -> vector``."""
        v, p = self._prelude.vector(dtype, lanes), self._source(dtype)
        return self._prelude.function(
            f"{v}_load_strided{'_first' if masked else ''}", v,
            f"{p}, int64_t stride{', int64_t active' if masked else ''}",
            lambda: f"return ({v}){each(lanes, lambda n: _guarded(_step(n), n, masked, dtype))};",
        )  # fmt: skip

    def gather(self, dtype: DType, lanes: int, offsets: DType, masked: bool) -> str:
        """``(pointer, offsets[, active]) -> vector``."""
        v, p = self._prelude.vector(dtype, lanes), self._source(dtype)
        o = self._prelude.vector(offsets, lanes)
        return self._prelude.function(
            f"{v}_gather{'_first' if masked else ''}_{prefix(offsets)}", v,
            f"{p}, {o} at{', int64_t active' if masked else ''}",
            lambda: [
                f"return ({v})"
                f"{each(lanes, lambda n: _guarded(f'p[at[{n}]]', n, masked, dtype))};"
            ],
        )  # fmt: skip

    # --- stores

    def store(self, dtype: DType, lanes: int) -> str:
        """``(pointer, vector)``."""
        v = self._prelude.vector(dtype, lanes)
        return self._prelude.function(
            f"{v}_store", "void", f"{memory_type(dtype)} *p, {v} v",
            lambda: f"*({v}_unaligned *)p = v;",
        )  # fmt: skip

    def store_first(self, dtype: DType, lanes: int) -> str:
        """``(pointer, vector, active)``."""
        v, whole = self._prelude.vector(dtype, lanes), self.store(dtype, lanes)
        return self._prelude.function(
            f"{v}_store_first", "void", f"{memory_type(dtype)} *p, {v} v, int64_t active",
            lambda: [
                f"if (active >= {lanes}) {{", f"    {whole}(p, v);", "    return;", "}",
                "for (int64_t l = 0; l < active; l++)", "    p[l] = v[l];",
            ],
        )  # fmt: skip

    def store_strided(self, dtype: DType, lanes: int, masked: bool) -> str:
        """``(pointer, vector, stride[, active])``."""
        v = self._prelude.vector(dtype, lanes)
        return self._prelude.function(
            f"{v}_store_strided{'_first' if masked else ''}", "void",
            f"{memory_type(dtype)} *p, {v} v, int64_t stride"
            f"{', int64_t active' if masked else ''}",
            lambda: [_lane_loop(lanes, masked), "    p[l * stride] = v[l];"],
        )  # fmt: skip

    def scatter(self, dtype: DType, lanes: int, offsets: DType, masked: bool) -> str:
        """``(pointer, offsets, vector[, active])``."""
        v = self._prelude.vector(dtype, lanes)
        o = self._prelude.vector(offsets, lanes)
        return self._prelude.function(
            f"{v}_scatter{'_first' if masked else ''}_{prefix(offsets)}", "void",
            f"{memory_type(dtype)} *p, {o} at, {v} v{', int64_t active' if masked else ''}",
            lambda: [_lane_loop(lanes, masked), "    p[at[l]] = v[l];"],
        )  # fmt: skip

    @staticmethod
    def _source(dtype: DType) -> str:
        return f"const {memory_type(dtype)} *p"


def _step(lane: int) -> str:
    return "p[0]" if lane == 0 else "p[stride]" if lane == 1 else f"p[{lane} * stride]"


def _guarded(element: str, lane: int, masked: bool, dtype: DType) -> str:
    zero = "0" if dtype == BOOL else constant(0, dtype)
    return f"active > {lane} ? {element} : {zero}" if masked else element


def _lane_loop(lanes: int, masked: bool) -> str:
    return f"for (int64_t l = 0; l < {lanes}{' && l < active' if masked else ''}; l++)"
