"""C functions that check whether a kernel stays within its buffers.

Operations on 32-bit numbers are computed in 64 bits, and results that do not fit 32 bits are
recorded.
"""

from __future__ import annotations

from collections.abc import Sequence

from modelcc.ir.index import Atom, FloorDiv, FloorMod, Index, IndexMax, IndexMin, Sym
from modelcc.targets.vm.hull import MOST, WORD, divisors, is_value, most
from modelcc.targets.vm.kernel import VmKernel

HELPERS = """\
/* A number of 32 bits; if it is none, `bad` becomes one. */
MCC_INLINE int32_t fitted(int64_t value, uint32_t *bad)
{
    *bad |= (uint32_t)((uint64_t)(value + INT64_C(2147483648)) >> 32);
    return (int32_t)(uint32_t)((uint64_t)value & 0xffffffff);
}

MCC_INLINE int32_t quotient(int32_t a, int32_t b) { return a / b - (a % b < 0); }

MCC_INLINE int32_t least(int32_t a, int32_t b) { return a < b ? a : b; }

MCC_INLINE int32_t greatest(int32_t a, int32_t b) { return a > b ? a : b; }"""


def bounds_function(kernel: VmKernel) -> str:
    """The function ``fits`` of a kernel."""
    code = _BoundsCode({name: n for n, name in enumerate(kernel.function.sizes)})
    code.indices()
    sides = [side for c in kernel.conditions for side in (c.left, c.right)]
    for d in dict.fromkeys(d for e in (*sides, *kernel.small) for d in divisors(e)):
        if not isinstance(d, int):
            code.lines.append(f"if ({code.value(d)} < 1) return 0;")
    tests = [
        f"{code.value(c.left)} {c.comparison} {code.value(c.right)}" for c in kernel.conditions
    ]
    for e in kernel.small:
        code.note(e)
    lines = ["uint32_t bad = 0;", *code.lines]
    last = " &&\n        ".join(["bad == 0", *tests])
    body = "\n".join(f"    {line}" for line in [*lines, f"return {last};"])
    return f"static int32_t {kernel.name}_fits(const int32_t *p)\n{{\n{body}\n}}"


class _BoundsCode:
    """Lines that bind expressions to names, each once."""

    def __init__(self, places: dict[str, int]) -> None:
        self.lines: list[str] = []
        self._places = places
        self._known: dict[str, str] = {}

    def indices(self) -> None:
        """Checks that index parameters are within their limits."""
        found = [f"p[{n}]" for name, n in self._places.items() if not is_value(name)]
        for start in range(0, len(found), 12):
            bits = " | ".join(found[start : start + 12])
            self.lines.append(f"if ((({bits}) & ~INT32_C({MOST})) != 0) return 0;")

    def value(self, e: Index) -> str:
        """A C expression of 32 bits."""
        if isinstance(e, int):
            return str(e)
        if isinstance(e, Sym):
            return f"p[{self._places[e.name]}]"
        if e.text in self._known:
            return self._known[e.text]
        text = self._atom(e) if isinstance(e, Atom) else self._sum(e)
        return self._named(e.text, text)

    def note(self, e: Index) -> None:
        """Records whether ``e`` fits."""
        if not isinstance(e, int | Atom) and e.text not in self._known:
            self.lines.append(f"(void){self._sum(e)};")

    def _named(self, key: str, text: str) -> str:
        name = f"t{len(self._known)}"
        self.lines.append(f"const int32_t {name} = {text};")
        self._known[key] = name
        return name

    def _fitted(self, text: str) -> str:
        return f"fitted({text}, &bad)"

    def _sum(self, e: Index) -> str:
        assert not isinstance(e, int)
        fits = most(e) <= WORD  # for all parameters
        wide = "" if fits else "(int64_t)"
        parts: list[str] = []
        for coefficient, factors in e.terms.values():
            assert abs(coefficient) < 1 << 26, "sums fit 64 bits"
            mono = self._product(factors)
            sign = "" if coefficient == 1 else "-" if coefficient == -1 else f"{coefficient} * "
            parts.append(f"{sign}{wide}{mono}")
        parts += [str(e.const)] if e.const else []
        text = " + ".join(parts).replace("+ -", "- ")
        return text if fits else self._fitted(text)

    def _product(self, factors: Sequence[Atom]) -> str:
        found = self.value(factors[0])
        key = factors[0].text
        for factor in factors[1:]:
            key = f"{key} * {factor.text}"
            if key not in self._known:
                self._named(key, self._fitted(f"(int64_t){found} * {self.value(factor)}"))
            found = self._known[key]
        return found

    def _atom(self, e: Atom) -> str:
        match e:
            case FloorDiv(dividend, divisor):
                return f"quotient({self.value(dividend)}, {self.value(divisor)})"
            case FloorMod(dividend, divisor):
                a, b = self.value(dividend), self.value(divisor)
                return f"{a} - quotient({a}, {b}) * {b}"
            case IndexMin(args) | IndexMax(args):
                name = "least" if isinstance(e, IndexMin) else "greatest"
                found = self.value(args[0])
                for a in args[1:]:
                    found = f"{name}({found}, {self.value(a)})"
                return found
            case _:
                raise TypeError(f"index atom {e} has no C form")
