"""Functions in WGSL that kernels call, by name: operations that WGSL has no operator for.

64-bit integers are pairs of words, the low one first.  16-bit floats are kept as f32; a bf16 is the
upper half of one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from modelcc.targets.c.code import words_of

_L = "vec2<u32>"


def _function(name: str, parameters: str, result: str, *body: str) -> tuple[str, str]:
    lines = "\n".join(f"    {line}" for line in body)
    return name, f"fn {name}({parameters}) -> {result} {{\n{lines}\n}}"


def _longs(name: str, result: str, *body: str) -> tuple[str, str]:
    return _function(name, f"a: {_L}, b: {_L}", result, *body)


_FLOATS = (
    ("f32_infinity_bits", "var<private> f32_infinity_bits: u32 = 0x7f800000u;"),
    ("f32_nan_bits", "var<private> f32_nan_bits: u32 = 0x7fc00000u;"),
    ("mcc_nothing", "var<private> mcc_nothing: u32;"),
    _function(
        "f32_kept", "a: f32", "f32", "return bitcast<f32>(bitcast<u32>(a) ^ mcc_nothing);"
    ),
    _function("f32_min", "a: f32, b: f32", "f32", "return select(b, a, a < b);"),
    _function("f32_max", "a: f32, b: f32", "f32", "return select(b, a, a > b);"),
    _function(
        "f32_sign", "a: f32", "f32", "return select(select(a, -1.0f, a < 0.0f), 1.0f, a > 0.0f);"
    ),
    _function(
        "f32_isnan", "a: f32", "bool", "return (bitcast<u32>(a) & 0x7fffffffu) > 0x7f800000u;"
    ),
    _function(
        "f32_isinf", "a: f32", "bool", "return (bitcast<u32>(a) & 0x7fffffffu) == 0x7f800000u;"
    ),
    _function(
        "f16_bits", "a: f32", "u32",
        "let bits = bitcast<u32>(a);",
        "let u = bits & 0x7fffffffu;",
        "let signed = (bits >> 16u) & 0x8000u;",
        "let normal = (u + 0xfffu + ((u >> 13u) & 1u) - 0x38000000u) >> 13u;",
        "let small = bitcast<u32>(bitcast<f32>(u) + 0.5f) - 0x3f000000u;",
        "if (u > 0x7f800000u) { return signed | 0x7e00u; }",
        "if (u >= 0x477ff000u) { return signed | 0x7c00u; }",
        "return signed | select(normal, small, u < 0x38800000u);",
    ),
    _function(
        "f16_of_bits", "h: u32", "f32",
        "let signed = (h & 0x8000u) << 16u;",
        "let moved = (h & 0x7fffu) << 13u;",
        "if (moved >= 0x0f800000u) { return bitcast<f32>(signed | moved | 0x7f800000u); }",
        "let small = bitcast<u32>(f32(h & 0x3ffu) * 5.9604645e-08f);",
        "return bitcast<f32>(signed | select(moved + 0x38000000u, small, moved < 0x00800000u));",
    ),
    _function("f16_rounded", "a: f32", "f32", "return f16_of_bits(f16_bits(a));"),
    _function(
        "bf16_bits", "a: f32", "u32",
        "let u = bitcast<u32>(a);",
        "if (f32_isnan(a)) { return (u >> 16u) | 0x40u; }",
        "return (u + 0x7fffu + ((u >> 16u) & 1u)) >> 16u;",
    ),
    _function("bf16_of_bits", "h: u32", "f32", "return bitcast<f32>(h << 16u);"),
    _function("bf16_rounded", "a: f32", "f32", "return bf16_of_bits(bf16_bits(a));"),
)  # fmt: skip

_WORDS = (
    _function(
        "mcc_floordiv", "a: i32, b: i32", "i32",
        "return a / b - select(0, 1, (a % b != 0) && ((a < 0) != (b < 0)));",
    ),
    _function(
        "mcc_mod", "a: i32, b: i32", "i32",
        "return a % b + select(0, b, (a % b != 0) && ((a < 0) != (b < 0)));",
    ),
    _function("i32_floordiv", "a: i32, b: i32", "i32",
        "if (b == 0) { return 0; }", "return mcc_floordiv(a, b);"),
    _function("i32_mod", "a: i32, b: i32", "i32",
        "if (b == 0 || b == -1) { return 0; }", "return mcc_mod(a, b);"),
    _function("i32_fmod", "a: i32, b: i32", "i32",
        "if (b == 0 || b == -1) { return 0; }", "return a % b;"),
    _function("i32_div", "a: i32, b: i32", "i32",
        "if (b == 0) { return a; }", "if (b == -1) { return -a; }", "return a / b;"),
    _function("i32_shl", "a: i32, b: u32, bits: u32", "i32",
        "return select(0, a << (b & 31u), b < bits);"),
    _function("i32_shr", "a: i32, b: u32, bits: u32", "i32", "return a >> min(b, bits - 1u);"),
    _function("u32_div", "a: u32, b: u32", "u32",
        "if (b == 0u) { return a; }", "return a / b;"),
    _function("u32_floordiv", "a: u32, b: u32", "u32",
        "if (b == 0u) { return 0u; }", "return a / b;"),
    _function("u32_mod", "a: u32, b: u32", "u32",
        "if (b == 0u) { return 0u; }", "return a % b;"),
    _function("u32_shl", "a: u32, b: u32, bits: u32", "u32",
        "return select(0u, a << (b & 31u), b < bits);"),
    _function("u32_shr", "a: u32, b: u32, bits: u32", "u32",
        "return select(0u, a >> (b & 31u), b < bits);"),
    _function("mcc_byte", "word: u32, at: i32", "u32",
        "return (word >> (8u * (u32(at) & 3u))) & 0xffu;"),
    _function("mcc_short", "word: u32, at: i32", "u32",
        "return (word >> (16u * (u32(at) & 1u))) & 0xffffu;"),
)  # fmt: skip

_LONGS = (
    _longs("i64_add", _L, "let low = a.x + b.x;",
        f"return {_L}(low, a.y + b.y + select(0u, 1u, low < a.x));"),
    _longs("i64_sub", _L, f"return {_L}(a.x - b.x, a.y - b.y - select(0u, 1u, a.x < b.x));"),
    _function("i64_neg", f"a: {_L}", _L, f"return i64_sub({_L}(0u, 0u), a);"),
    _function("u64_product", "a: u32, b: u32", _L,
        "let low = (a & 0xffffu) * (b & 0xffffu);",
        "let left = (a >> 16u) * (b & 0xffffu) + (low >> 16u);",
        "let right = (a & 0xffffu) * (b >> 16u) + (left & 0xffffu);",
        "let high = (a >> 16u) * (b >> 16u) + (left >> 16u) + (right >> 16u);",
        f"return {_L}((right << 16u) | (low & 0xffffu), high);"),
    _longs("i64_mul", _L, "let low = u64_product(a.x, b.x);",
        f"return {_L}(low.x, low.y + a.x * b.y + a.y * b.x);"),
    _longs("u64_lt", "bool", "return select(a.y < b.y, a.x < b.x, a.y == b.y);"),
    _longs("i64_lt", "bool",
        "return select(bitcast<i32>(a.y) < bitcast<i32>(b.y), a.x < b.x, a.y == b.y);"),
    _longs("i64_shl", _L, "let n = b.x & 31u;",
        f"if (b.y != 0u || b.x >= 64u) {{ return {_L}(0u, 0u); }}",
        f"if (b.x >= 32u) {{ return {_L}(0u, a.x << n); }}",
        "if (n == 0u) { return a; }",
        f"return {_L}(a.x << n, (a.y << n) | (a.x >> (32u - n)));"),
    _longs("u64_shr", _L, "let n = b.x & 31u;",
        f"if (b.y != 0u || b.x >= 64u) {{ return {_L}(0u, 0u); }}",
        f"if (b.x >= 32u) {{ return {_L}(a.y >> n, 0u); }}",
        "if (n == 0u) { return a; }",
        f"return {_L}((a.x >> n) | (a.y << (32u - n)), a.y >> n);"),
    _longs("i64_shr", _L, "let fill = select(0u, 0xffffffffu, bitcast<i32>(a.y) < 0);",
        f"if (b.y != 0u || b.x >= 64u) {{ return {_L}(fill, fill); }}",
        "let n = b.x & 31u;",
        "let high = bitcast<u32>(bitcast<i32>(a.y) >> n);",
        f"if (b.x >= 32u) {{ return {_L}(high, fill); }}",
        "if (n == 0u) { return a; }",
        f"return {_L}((a.x >> n) | (a.y << (32u - n)), high);"),
    _function("i64_of_i32", "a: i32", _L, f"return {_L}(u32(a), select(0u, 0xffffffffu, a < 0));"),
    _function("i32_near", f"a: {_L}", "i32", "let low = bitcast<i32>(a.x);",
        "let high = bitcast<i32>(a.y);",
        "let near = select(select(0x7fff0000, -0x7fff0000, high < 0), low, high == (low >> 31u));",
        "return clamp(near, -0x7fff0000, 0x7fff0000);"),
    _function("i64_abs", f"a: {_L}", _L, "if (bitcast<i32>(a.y) < 0) { return i64_neg(a); }",
        "return a;"),
    _function("i64_sign", f"a: {_L}", _L,
        "if (bitcast<i32>(a.y) < 0) { return i64_of_i32(-1); }",
        f"return {_L}(select(0u, 1u, any(a != {_L}(0u, 0u))), 0u);"),
    _function("u64_sign", f"a: {_L}", _L,
        f"return {_L}(select(0u, 1u, any(a != {_L}(0u, 0u))), 0u);"),
    _longs("i64_min", _L, "if (i64_lt(a, b)) { return a; }", "return b;"),
    _longs("i64_max", _L, "if (i64_lt(b, a)) { return a; }", "return b;"),
    _longs("u64_min", _L, "if (u64_lt(a, b)) { return a; }", "return b;"),
    _longs("u64_max", _L, "if (u64_lt(b, a)) { return a; }", "return b;"),
    _longs("u64_divmod", "vec4<u32>",
        "if (a.y == 0u && b.y == 0u) { return vec4<u32>(a.x / b.x, 0u, a.x % b.x, 0u); }",
        f"var quotient = {_L}(0u, 0u);",
        f"var rest = {_L}(0u, 0u);",
        "for (var bit = 63; bit >= 0; bit--) {",
        "    let over = rest.y >> 31u;",
        "    let word = select(a.x, a.y, bit >= 32);",
        f"    rest = {_L}((rest.x << 1u) | ((word >> (u32(bit) & 31u)) & 1u),"
        " (rest.y << 1u) | (rest.x >> 31u));",
        "    if (over != 0u || !u64_lt(rest, b)) {",
        "        rest = i64_sub(rest, b);",
        "        if (bit >= 32) { quotient.y |= 1u << (u32(bit) & 31u); }",
        "        else { quotient.x |= 1u << u32(bit); }",
        "    }",
        "}",
        "return vec4<u32>(quotient, rest);"),
    _longs("u64_div", _L, f"if (all(b == {_L}(0u, 0u))) {{ return a; }}",
        "return u64_divmod(a, b).xy;"),
    _longs("u64_floordiv", _L, f"if (all(b == {_L}(0u, 0u))) {{ return b; }}",
        "return u64_divmod(a, b).xy;"),
    _longs("u64_mod", _L, f"if (all(b == {_L}(0u, 0u))) {{ return b; }}",
        "return u64_divmod(a, b).zw;"),
    _longs("i64_div", _L, f"if (all(b == {_L}(0u, 0u))) {{ return a; }}",
        "let size = u64_divmod(i64_abs(a), i64_abs(b)).xy;",
        "if (((a.y ^ b.y) >> 31u) != 0u) { return i64_neg(size); }",
        "return size;"),
    _longs("i64_fmod", _L, f"if (all(b == {_L}(0u, 0u))) {{ return b; }}",
        "let size = u64_divmod(i64_abs(a), i64_abs(b)).zw;",
        "if ((a.y >> 31u) != 0u) { return i64_neg(size); }",
        "return size;"),
    _longs("i64_mod", _L, "let rest = i64_fmod(a, b);",
        f"if (any(rest != {_L}(0u, 0u)) && ((a.y ^ b.y) >> 31u) != 0u)"
        " { return i64_add(rest, b); }",
        "return rest;"),
    _longs("i64_floordiv", _L, f"if (all(b == {_L}(0u, 0u))) {{ return b; }}",
        "let quotient = i64_div(a, b);",
        "let rest = i64_sub(a, i64_mul(quotient, b));",
        f"let lower = any(rest != {_L}(0u, 0u)) && ((a.y ^ b.y) >> 31u) != 0u;",
        f"return i64_sub(quotient, {_L}(select(0u, 1u, lower), 0u));"),
    _function("f32_of_u64", f"a: {_L}", "f32",
        "if (a.y == 0u) { return f32(a.x); }",
        "let n = 32u - countLeadingZeros(a.y);",
        f"let top = u64_shr(a, {_L}(n, 0u));",
        f"let lost = any(i64_shl(top, {_L}(n, 0u)) != a);",
        "return ldexp(f32(top.x | select(0u, 1u, lost)), i32(n));"),
    _function("f32_of_i64", f"a: {_L}", "f32",
        "let size = f32_of_u64(i64_abs(a));",
        "return select(size, -size, bitcast<i32>(a.y) < 0);"),
    _function("u64_of_f32", "a: f32", _L,
        "let high = floor(a * 2.3283064e-10f);",
        f"return {_L}(u32(a - high * 4294967296.0f), u32(high));"),
    _function("i64_of_f32", "a: f32", _L,
        "let size = u64_of_f32(abs(trunc(a)));",
        "if (a < 0.0f) { return i64_neg(size); }",
        "return size;"),
    _function("i32_high_word", "a: i32, b: i32", "i32",
        "return i32(i64_mul(i64_of_i32(a), i64_of_i32(b)).y);"),
    _function("i32_rounding_high_word", "a: i32, b: i32", "i32",
        "let product = i64_mul(i64_of_i32(a), i64_of_i32(b));",
        f"return i32(i64_add(product, {_L}(0x80000000u, 0u)).y);"),
    _function("i32_rounding_high_mul", "a: i32, b: i32", "i32",
        "if (a == b && u32(a) == 0x80000000u) { return 2147483647; }",
        f"let product = i64_add(i64_mul(i64_of_i32(a), i64_of_i32(b)), {_L}(1u << 30u, 0u));",
        f"return i32(i64_shr(product, {_L}(31u, 0u)).x);"),
    _function("i32_rounding_shr", "a: i32, b: i32", "i32",
        "let n = u32(b) & 31u;",
        "let mask = (1u << n) - 1u;",
        "let least = (mask >> 1u) + select(0u, 1u, a < 0);",
        "return (a >> n) + select(0, 1, (u32(a) & mask) > least);"),
)  # fmt: skip

LIBRARY: Mapping[str, str] = MappingProxyType(dict((*_FLOATS, *_WORDS, *_LONGS)))


def library_of(lines: Iterable[str]) -> tuple[str, ...]:
    """Definitions of functions in ``lines``, and of those that these call, in the table's order."""
    found = set[str]()
    waiting = [*lines]
    while waiting:
        called = words_of(waiting).keys() & LIBRARY.keys() - found
        found |= called
        waiting = [LIBRARY[name] for name in called]
    return tuple(text for name, text in LIBRARY.items() if name in found)
