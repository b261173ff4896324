"""The processors and features that LLVM knows, to refuse a misspelt one.

LLVM itself only prints a warning about an unknown name, and generates code for a generic
processor. It prints its lists, too, so both are read from the output of a subprocess.
"""

import difflib
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from modelcc.targets.native.diagnostics import CodegenError
from modelcc.targets.native.machine import Machine

_LIST = """
import sys
import llvmlite.binding as llvm
llvm.initialize_all_targets()
llvm.Target.from_triple(sys.argv[1]).create_target_machine(cpu="help")
"""
_ENTRY = re.compile(r"^  (\S+)\s+- ", re.MULTILINE)


@dataclass(frozen=True)
class SupportedNames:
    """What LLVM accepts as `Machine.cpu` and, without a sign, in `Machine.features`."""

    processors: tuple[str, ...]
    features: tuple[str, ...]


def supported_names(triple: str) -> SupportedNames:
    """The processors and features of a triple's architecture; takes about 80 ms.

    Raises CodegenError if LLVM has no code generator for it.
    """
    listing = subprocess.run(
        [sys.executable, "-c", _LIST, triple], capture_output=True, text=True, check=False
    )
    if listing.returncode:
        reason = listing.stderr.strip().splitlines()[-1:]
        raise CodegenError(f"LLVM cannot generate code for '{triple}': {' '.join(reason)}")
    processors, _, features = listing.stderr.partition("Available features")
    return SupportedNames(_entries(processors), _entries(features))


def check_names(machine: Machine) -> None:
    """Raise CodegenError if `machine` has a processor or feature that LLVM does not know."""
    known = supported_names(machine.triple)
    if machine.cpu and machine.cpu not in known.processors:
        raise CodegenError(_unknown("processor", machine.cpu, machine, known.processors))
    for feature in machine.features:
        if feature[1:] not in known.features:
            raise CodegenError(_unknown("feature", feature[1:], machine, known.features))


def _entries(listing: str) -> tuple[str, ...]:
    return tuple(sorted({str(found) for found in _ENTRY.findall(listing)}))


def _unknown(kind: str, name: str, machine: Machine, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, known, n=3)
    hint = f"; did you mean {' or '.join(close)}?" if close else f"; known are {', '.join(known)}"
    return f"LLVM knows no {kind} '{name}' for {machine.architecture}{hint}"
