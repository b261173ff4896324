"""Kinds of instructions of a disassembly."""

from __future__ import annotations

import re
from collections.abc import Iterator

from modelcc.targets.mcu.timing import Kind

_SEVERAL = re.compile(r"v?(ldm|stm|push|pop)")
_RANGE = re.compile(r"\s*[a-z]+(\d+)\s*-\s*[a-z]+(\d+)")
_LONG = ("umull", "smull", "umlal", "smlal", "umaal")
_RISCV_DIVIDE = ("div", "divu", "rem", "remu")
_RISCV_LOAD, _RISCV_STORE = ("lb", "lbu", "lh", "lhu", "lw"), ("sb", "sh", "sw")


def kind_of(name: str, operands: str, architecture: str) -> Iterator[tuple[Kind, int]]:
    """The kinds of the instruction ``name``, each with its count."""
    base = name.removeprefix("c.").split(".")[0]
    if architecture == "riscv32":
        yield _of_riscv(base), 1
        return
    if _SEVERAL.match(base):
        yield "several", 1
        yield "registers", _registers(operands)
        return
    yield _of_arm(base, name), 1


def _of_arm(base: str, name: str) -> Kind:
    if base.startswith("v"):
        return _of_arm_vector(base, name)
    if base.startswith(("ldrd", "strd")):
        return "pair"
    if base.startswith(("ldr", "tb")):
        return "load"
    if base.startswith("str"):
        return "store"
    if base.startswith(("udiv", "sdiv")):
        return "divide"
    if base.startswith(_LONG) and not base.startswith("smlald"):
        return "long_multiply"
    is_product = base.startswith(("mul", "mla", "mls", "smul", "smla", "smmul", "smmla", "smuad"))
    return "multiply" if is_product else "plain"


def _of_arm_vector(base: str, name: str) -> Kind:
    if base.startswith("vldr") and ".f" not in name and "." in name and name[-1] in "82":
        return "vector" if name.split(".")[1][0] in "us" else "load"
    if base == "vldr":
        return "load"
    if base == "vstr":
        return "store"
    if base in ("vdiv", "vsqrt"):
        return "float_divide"
    if base in ("vmla", "vmls", "vfma", "vfms", "vnmla", "vnmls", "vfnma", "vfnms"):
        return "float_product" if ".f" in name else "vector"
    return "float" if ".f" in name or base in ("vmov", "vmrs", "vcvt", "vcmp") else "vector"


def _of_riscv(name: str) -> Kind:
    if name in _RISCV_LOAD:
        return "load"
    if name in _RISCV_STORE:
        return "store"
    if name in _RISCV_DIVIDE:
        return "divide"
    return "multiply" if name.startswith("mul") else "plain"


def _registers(operands: str) -> int:
    """The number of registers in ``{r4-r7, lr}``."""
    listed = re.search(r"\{([^}]*)\}", operands)
    total = 0
    for part in (listed[1] if listed else "").split(","):
        span = _RANGE.match(part)
        total += int(span[2]) - int(span[1]) + 1 if span else 1
    return total
