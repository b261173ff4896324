"""What AMD's machine code does in its loops, counted, and what it takes."""

from __future__ import annotations

import re
import shutil
from collections import Counter

from modelcc.targets.amdgpu.target import LINKERS

HAS_LINKER = any(map(shutil.which, LINKERS))
"""Whether code objects can be made here."""

_LABEL = re.compile(r"^(\.LBB\d+_\d+):", re.MULTILINE)
_INSTRUCTION = re.compile(r"^\t([a-z]\w+)")

MFMA_CYCLES = {"gfx90a": 32, "gfx942": 16, "gfx950": 16}
"""Of a SIMD for a product of 16 x 16 sums and 16 terms of 16 bits: ``Execution cycles`` of AMD's
calculator (github.com/ROCm/amd_matrix_instruction_calculator).  It does not know gfx950, which has
instructions of 32 terms: 4,096 operations of a unit in a cycle (MI350X's data sheet: 2,306.9
TFLOP/s of 256 units at 2.2 GHz) make 16 cycles of each."""

VALU_CYCLES = 4
"""That a SIMD of 16 lanes takes to issue an instruction of 64 threads, at most."""

WMMA_CYCLES = {"gfx1100": 32, "gfx1201": 16}
"""The same of ``v_wmma`` by that calculator; bytes take half of that on gfx1201.  Nothing else of
the SIMD goes on beside it, whose 32 lanes take a cycle for an instruction of 32 threads."""


def loops_of(code: str) -> list[Counter[str]]:
    """Instructions of each loop of assembly, by their names."""
    found: list[Counter[str]] = []
    for label in _LABEL.finditer(code):
        jumps = list(re.finditer(rf"s_c?branch\w* {re.escape(label[1])}\n", code[label.end() :]))
        if jumps:
            body = code[label.end() : label.end() + jumps[-1].end()]
            names = map(_INSTRUCTION.match, body.splitlines())
            found.append(Counter(m[1] for m in names if m))
    return found


def full_waits_in(code: str) -> int:
    """How often the loop with the most products waits for all that was asked of LDS."""
    pattern = r"^(\.LBB\d+_\d+):.*?s_c?branch\w* \1\n"
    loops = (m[0] for m in re.finditer(pattern, code, re.MULTILINE | re.DOTALL))
    most = max(loops, key=lambda body: body.count("v_wmma") + body.count("v_mfma"))
    return len(re.findall(r"lgkmcnt\(0\)|s_wait_dscnt 0x0", most))


def products_in(loop: Counter[str]) -> int:
    """Matrix instructions."""
    return sum(count for name, count in loop.items() if name.startswith(("v_mfma", "v_wmma")))


def matrix_part(loop: Counter[str], cycles: int, others: int = VALU_CYCLES) -> float:
    """The part of a loop's time that matrix cores work, if nothing went on beside them: products
    take ``cycles`` each, every other instruction what ``others`` do."""
    products = products_in(loop)
    return products * cycles / (products * cycles + (loop.total() - products) * others)


def taken(code: str, word: str) -> int:
    """A number of a kernel's description, ``.vgpr_count`` or the like."""
    found = re.search(rf"{re.escape(word)}:\s*(\d+)", code)
    assert found is not None
    return int(found[1])
