"""The prelude of a C file: includes, vector types and small inline functions.

Only what is requested is printed, in the order of first use, so that definitions come after those
they refer to.
"""

from __future__ import annotations

from collections.abc import Callable

from modelcc.ir.types import DType
from modelcc.targets.c.code import folded
from modelcc.targets.c.dialect import GNU, CDialect
from modelcc.targets.c.values import mask_type, memory_type, prefix, scalar_type, vector_type

_POOL = """\
#ifdef MCC_SERIAL /* everything in the calling thread, without a pool */
static void mcc_parallel_for(void *pool, void (*body)(void *, int64_t, int64_t, int32_t),
                             void *context, int64_t extent, int64_t grain)
{
    (void)pool, (void)grain;
    body(context, 0, extent, 0);
}
#else /* pool.h */
extern void mcc_parallel_for(void *pool, void (*body)(void *, int64_t, int64_t, int32_t),
                             void *context, int64_t extent, int64_t grain);
#endif"""

_VECTOR_CALLS = """\
/* Vectors are passed within this file only: how other compilers pass them does not matter. */
#pragma GCC diagnostic ignored "-Wpsabi\""""

_INDEX = {
    "mcc_floordiv": "return a / b - (a % b != 0 && (a < 0) != (b < 0));",
    "mcc_mod": "return a % b + (a % b != 0 && (a < 0) != (b < 0) ? b : 0);",
    "mcc_min": "return a < b ? a : b;",
    "mcc_max": "return a > b ? a : b;",
}

_CHECKED = {
    "mcc_add": "const bool fine = b > 0 ? a <= INT64_MAX - b : a >= INT64_MIN - b;\n"
    "*bad |= !fine;\nreturn fine ? a + b : 0;",
    "mcc_mul": "bool over = false;\n"
    "if (a > 0 && b > 0) over = a > INT64_MAX / b;\n"
    "if (a > 0 && b < 0) over = b < INT64_MIN / a;\n"
    "if (a < 0 && b > 0) over = a < INT64_MIN / b;\n"
    "if (a < 0 && b < 0) over = b < INT64_MAX / a;\n"
    "*bad |= over;\nreturn over ? 0 : a * b;",
    "mcc_divisor": "const bool none = b == 0 || (b == -1 && a == INT64_MIN);\n"
    "*bad |= none;\nreturn none ? 1 : b;",
}


class Prelude:
    """Collects definitions by name, in a dialect.

    ``parallel_for`` names a function like ``mcc_parallel_for`` that the file declares already.
    """

    def __init__(self, dialect: CDialect = GNU, parallel_for: str = "") -> None:
        self.dialect = dialect
        self._parallel_for = parallel_for
        self._types: dict[str, str] = {}
        self._functions: dict[str, str] = {}
        self._includes: dict[tuple[str, str], None] = {}

    def text(self) -> str:
        """Includes and definitions."""
        includes = "\n".join(f"#include <{header}>" for header in self.dialect.headers)
        attribute = f"#define MCC_INLINE {self.dialect.inline}"
        conditional = [f"#ifdef {m}\n#include <{h}>\n#endif" for h, m in self._includes]
        parts = ["\n".join(filter(None, [includes, *conditional, self.dialect.opening]))]
        if self._functions:
            parts.append(attribute)
        if self._types:
            parts.append("\n".join([_VECTOR_CALLS, *self._types.values()]))
        return "\n\n".join([*parts, *self._functions.values()])

    def vector(self, dtype: DType, lanes: int) -> str:
        """Name of a vector type, with its definition emitted."""
        return self._vector(vector_type(dtype, lanes), memory_type(dtype), dtype.bytes, lanes)

    def bits(self, bits: int, lanes: int, signed: bool = False) -> str:
        """Name of a vector of integers, defined."""
        name = mask_type(bits, lanes) if signed else f"u{bits}x{lanes}"
        return self._vector(name, f"{'' if signed else 'u'}int{bits}_t", bits // 8, lanes)

    def mask(self, bits: int, lanes: int) -> str:
        """Name of a vector of masks, defined."""
        return self.bits(bits, lanes, signed=True)

    def function(
        self, name: str, result: str, parameters: str, body: Callable[[], str | list[str]]
    ) -> str:
        """``name``, defined as an inline function; ``body`` yields its lines."""
        if name not in self._functions:
            lines = body()
            lines = [lines] if isinstance(lines, str) else lines
            head = folded(f"MCC_INLINE {result} {name}({parameters})", "")
            text = [row for line in lines for row in _indented(line)]
            self._functions[name] = "\n".join([*head, "{", *text, "}"])
        return name

    def routine(self, name: str, definition: Callable[[], str]) -> None:
        """The function ``name``, defined once."""
        if name not in self._functions:
            text = definition()
            self._functions[name] = text

    def bitcast(self, source: DType, target: DType) -> str:
        """``(source) -> target``: reinterprets the bits, defined."""
        given, result = scalar_type(source), scalar_type(target)
        return self.function(
            f"{prefix(target)}_of_{prefix(source)}_bits", result, f"{given} from",
            lambda: [f"{result} to;", "memcpy(&to, &from, sizeof to);", "return to;"],
        )  # fmt: skip

    def include(self, header: str, macro: str) -> None:
        """Includes ``header``, if not empty, where ``macro`` is defined."""
        if header:
            self._includes[header, macro] = None

    def index(self, name: str) -> str:
        """``mcc_floordiv``, ``mcc_mod``, ``mcc_min`` or ``mcc_max``, defined."""
        kind = self.dialect.index
        return self.function(name, kind, f"{kind} a, {kind} b", lambda: _INDEX[name])

    def checked(self, name: str) -> str:
        """``mcc_add``, ``mcc_mul`` (of a and b) or ``mcc_divisor`` (b, to divide a by), defined.

        Overflow of 64 bits sets ``*bad``.
        """
        parameters = "int64_t a, int64_t b, bool *bad"
        return self.function(name, "int64_t", parameters, lambda: _CHECKED[name].split("\n"))

    def parallel_for(self) -> str:
        """Name of the function that runs parallel loops, declared."""
        if self._parallel_for:
            return self._parallel_for
        self._functions["mcc_parallel_for"] = _POOL
        return "mcc_parallel_for"

    def _vector(self, name: str, element: str, size: int, lanes: int) -> str:
        if not self.dialect.vectors:
            raise NotImplementedError(f"{self.dialect.name} has no vectors; schedule with one lane")
        if lanes & (lanes - 1):
            raise NotImplementedError(
                f"C has no vectors of {lanes} elements; schedule with a power of two of lanes"
            )
        if name not in self._types:
            whole = f"vector_size({size * lanes})"
            self._types[name] = (
                f"typedef {element} {name} __attribute__(({whole}));\n"
                f"typedef {element} {name}_unaligned "
                f"__attribute__(({whole}, aligned({size}), may_alias));"
            )
        return name


def _indented(line: str) -> list[str]:
    if line.startswith("#"):
        return [line]
    bare = line.lstrip(" ")
    return folded(bare, " " * (4 + len(line) - len(bare)))


def each(lanes: int, item: Callable[[int], str]) -> str:
    """``{item(0), item(1), …}``."""
    return f"{{{', '.join(item(lane) for lane in range(lanes))}}}"
