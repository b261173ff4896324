"""Names that may appear in a caller's C and C++: of the model, its tensors and its dimensions."""

from __future__ import annotations

import re
from collections.abc import Iterable

from modelcc.ir.errors import ModelError
from modelcc.targets.c.names import identifier

_CPP = """
alignas alignof and and_eq asm bitand bitor catch char8_t char16_t char32_t class compl concept
consteval constexpr constinit const_cast co_await co_return co_yield decltype delete explicit
dynamic_cast export friend mutable namespace new noexcept not not_eq nullptr operator or or_eq
private protected public reinterpret_cast requires static_assert static_cast template this
thread_local throw try typeid typename using virtual wchar_t xor xor_eq
"""
_LIBRARY = """
assert BUFSIZ CLOCKS_PER_SEC complex CHAR_BIT CMPLX CMPLXF CMPLXL EDOM EILSEQ EOF ERANGE
EXIT_FAILURE EXIT_SUCCESS FILENAME_MAX FOPEN_MAX FP_FAST_FMA FP_ILOGB0 FP_ILOGBNAN FP_INFINITE
FP_NAN FP_NORMAL FP_SUBNORMAL FP_ZERO HUGE_VAL HUGE_VALF HUGE_VALL I INFINITY L_tmpnam
MATH_ERREXCEPT MATH_ERRNO MB_CUR_MAX MB_LEN_MAX NAN RAND_MAX SEEK_CUR SEEK_END SEEK_SET TIME_UTC
TMP_MAX alloca errno imaginary kill_dependency math_errhandling noreturn offsetof setjmp stderr
stdin stdout va_arg va_copy va_end va_start
"""
_LIMITS = r"((S|U)?CHAR|U?(SHRT|INT|LONG|LLONG))_(MIN|MAX)"
_PREFIXED = r"(ATOMIC|DBL|FE|FLT|LC|LDBL|M|PRI|SCN|SIG)_\w+|SIG[A-Z0-9]+|(PRI|SCN)[diouxX][A-Z0-9]+"
_MACROS = re.compile(f"{_LIMITS}|{_PREFIXED}")
"""Macros defined by the headers of C and POSIX, which may be included before ours."""
_CPP_WORDS = frozenset((*_CPP.split(), *_LIBRARY.split()))
_FILES = """
alloca assert complex ctype elf endian errno fcntl features fenv float getopt inttypes iso646
limits link locale main malloc math memory poll pthread regex sched search setjmp signal spawn
stdalign stdarg stdatomic stdbool stdckdint stddef stdint stdio stdlib stdnoreturn string
strings tgmath threads time uchar unistd values wchar wctype
"""
_TAKEN_FILES = frozenset(_FILES.split())
"""File names that would shadow the system's headers, or collide with the example's."""


_LONGEST = 56
"""Maximum letters kept of a name: C99 distinguishes identifiers by 63, and a number takes some."""


def field_names(names: Iterable[str], taken: Iterable[str] = ()) -> tuple[str, ...]:
    """A unique C and C++ identifier for each of ``names``, derived from its beginning."""
    used = set(taken)
    found: list[str] = []
    for name in names:
        spelled = base = cpp_identifier(cpp_identifier(name)[:_LONGEST])
        count = 1
        while spelled in used:
            count += 1
            spelled = f"{base}_{count}"
        used.add(spelled)
        found.append(spelled)
    return tuple(found)


def cpp_identifier(name: str) -> str:
    """``name`` as an identifier reserved neither by C nor by C++ nor by their libraries."""
    spelled = re.sub("__+", "_", identifier(name)).rstrip("_") or "v"
    is_word = spelled in _CPP_WORDS or _MACROS.fullmatch(spelled) or identifier(spelled) != spelled
    return f"v_{spelled}" if is_word else spelled


def prefix_of(stem: str) -> str:
    """Prefix of all names of a model, derived from its file's name."""
    spelled = cpp_identifier(stem)
    return f"{spelled}_model" if _is_taken(spelled) else spelled


def checked_prefix(name: str) -> str:
    """``name``; :class:`ModelError` if it is no valid prefix of C identifiers and of files."""
    if cpp_identifier(name) != name or _is_taken(name):
        hint = "choose letters, digits and _, no word of C and no name of a system header"
        raise ModelError(f"{name!r} cannot be the name of a model in C", (), hint)
    return name


def _is_taken(name: str) -> bool:
    return name.lower() in _TAKEN_FILES
