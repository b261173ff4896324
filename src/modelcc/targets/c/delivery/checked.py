"""Sizes as C that notices when they no longer fit 64 bits: dimensions come from the caller."""

from __future__ import annotations

from collections.abc import Mapping

from modelcc.ir.index import Atom, FloorDiv, FloorMod, Index, IndexMax, IndexMin, Sym

_WHY = "/* Sizes are computed with a note of whether they fit 64 bits: the caller may give any. */"

_HELPERS: Mapping[str, str] = {
    "fit_add": """\
static inline int64_t fit_add(int64_t a, int64_t b, bool *fits)
{
    const bool fine = b > 0 ? a <= INT64_MAX - b : a >= INT64_MIN - b;
    *fits &= fine;
    return fine ? a + b : 0;
}""",
    "fit_mul": """\
static inline int64_t fit_mul(int64_t a, int64_t b, bool *fits)
{
    bool over = false;
    if (a > 0 && b > 0) over = a > INT64_MAX / b;
    if (a > 0 && b < 0) over = b < INT64_MIN / a;
    if (a < 0 && b > 0) over = a < INT64_MIN / b;
    if (a < 0 && b < 0) over = b < INT64_MAX / a;
    *fits &= !over;
    return over ? 0 : a * b;
}""",
    "fit_div": """\
static inline int64_t fit_div(int64_t a, int64_t b, bool *fits)
{
    *fits &= b > 0;
    return b > 0 ? a / b - (a % b < 0) : 0;
}""",
    "fit_mod": """\
static inline int64_t fit_mod(int64_t a, int64_t b, bool *fits)
{
    *fits &= b > 0;
    return b > 0 ? a % b + (a % b < 0 ? b : 0) : 0;
}""",
    "fit_min": """\
static inline int64_t fit_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}""",
    "fit_max": """\
static inline int64_t fit_max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}""",
}


def checked(e: Index, names: Mapping[str, str]) -> str:
    """C of ``e`` with symbols spelled as in ``names``; ``fits`` is a pointer to a bool."""
    if isinstance(e, int):
        return str(e)
    if isinstance(e, Sym):
        return names[e.name]
    if isinstance(e, Atom):
        return _atom(e, names)
    result = str(e.const) if e.const else ""
    for coefficient, factors in e.terms.values():
        product = "" if coefficient == 1 else str(coefficient)
        for factor in factors:
            text = checked(factor, names)
            product = f"fit_mul({product}, {text}, fits)" if product else text
        result = f"fit_add({product}, {result}, fits)" if result else product
    return result


def helpers(text: str) -> str:
    """Definitions of the functions that ``text`` of :func:`checked` calls."""
    called = [body for name, body in _HELPERS.items() if f"{name}(" in text]
    return "\n\n".join([_WHY, *called]) if called else ""


def _atom(e: Atom, names: Mapping[str, str]) -> str:
    match e:
        case FloorDiv(dividend, divisor):
            return f"fit_div({checked(dividend, names)}, {checked(divisor, names)}, fits)"
        case FloorMod(dividend, divisor):
            return f"fit_mod({checked(dividend, names)}, {checked(divisor, names)}, fits)"
        case IndexMin() | IndexMax():
            name = "fit_min" if isinstance(e, IndexMin) else "fit_max"
            result = checked(e.args[0], names)
            for other in e.args[1:]:
                result = f"{name}({result}, {checked(other, names)})"
            return result
        case _:
            raise TypeError(f"index atom {e} has no C form")
