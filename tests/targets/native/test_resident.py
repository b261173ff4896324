"""Code that is given back is read again where it runs."""

from pathlib import Path

import pytest

from modelcc.targets.native.target import release_code
from modelcc.targets.native.toolchain import compile_llvm, host_machine, llvm_folder

MAPS = Path("/proc/self/smaps")
TEXT = "define i32 @f(i32 %x) { %y = add i32 %x, 1 ret i32 %y }"


def _resident_code() -> int:
    """Kilobytes of LLVM's code that are in memory."""
    found, inside = 0, False
    for line in MAPS.read_text().splitlines():
        fields = line.split()
        if not fields[0].endswith(":"):
            inside = fields[1] == "r-xp" and fields[-1].startswith(str(llvm_folder()))
        elif inside and fields[0] == "Rss:":
            found += int(fields[1])
    return found


@pytest.mark.skipif(not MAPS.is_file(), reason="only Linux tells what is in memory")
def test_code_is_given_back_and_runs_again() -> None:
    before = compile_llvm(TEXT, host_machine())
    used = _resident_code()
    release_code(llvm_folder())
    assert _resident_code() < used // 4
    assert compile_llvm(TEXT, host_machine()) == before
