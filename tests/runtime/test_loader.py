"""Loading object files: linking, the process's own symbols, refusals, lifetime."""

import ctypes
import gc
from typing import Any

import pytest

from modelcc.runtime.errors import LoadError
from modelcc.runtime.linking.elf import NotElfError, read_object
from modelcc.runtime.loader import load_objects
from modelcc.targets.native.machine import Machine
from modelcc.targets.native.toolchain import compile_llvm, host_machine

KERNEL = """
@table = global [4 x float] [float 1.0, float 2.0, float 3.0, float 4.0]
declare float @floorf(float)
define internal float @twice(float %x) {
  %y = fmul float %x, 2.0
  ret float %y
}
define float @kernel(float %x) {
  %e = call float @floorf(float %x) nobuiltin
  %y = call float @twice(float %e)
  ret float %y
}
"""
PROGRAM = """
@table = external global [4 x float]
declare float @kernel(float)
declare float @host(float)
define float @main(float %x, i64 %i) {
  %y = call float @kernel(float %x)
  %p = getelementptr [4 x float], ptr @table, i64 0, i64 %i
  %t = load float, ptr %p
  %s = fadd float %y, %t
  %h = call float @host(float %s)
  ret float %h
}
"""
HOST = ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_float)


def compiled(text: str) -> bytes:
    return compile_llvm(text, host_machine())


def address_of(callback: Any) -> int:
    return ctypes.cast(callback, ctypes.c_void_p).value or 0


def test_objects_are_linked_with_each_other_and_the_process() -> None:
    host = HOST(lambda x: 10 * x)
    code = load_objects([compiled(PROGRAM), compiled(KERNEL)], {"host": address_of(host)})
    assert code.names == ("kernel", "main", "table")
    main = ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_float, ctypes.c_int64)(code.address("main"))
    assert main(1.5, 2) == 10 * (2 * 1 + 3)
    table = (ctypes.c_float * 4).from_address(code.address("table"))
    assert list(table) == [1, 2, 3, 4]


def test_one_object_can_be_loaded_many_times() -> None:
    kernel = compiled(KERNEL)
    codes = [load_objects([kernel]) for _ in range(20)]
    assert len({code.address("table") for code in codes}) == 20
    del codes
    gc.collect()
    code = load_objects([kernel])
    function = ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_float)(code.address("kernel"))
    assert function(1.5) == 2.0


def test_missing_symbols_are_named() -> None:
    with pytest.raises(LoadError, match="not defined: host, kernel, table"):
        load_objects([compiled(PROGRAM)])


def test_the_system_gives_only_names_that_are_listed() -> None:
    text = KERNEL.replace("floorf", "expf")
    with pytest.raises(LoadError, match="not defined: expf"):
        load_objects([compiled(text)])


def test_duplicates_are_named() -> None:
    with pytest.raises(LoadError, match="defined twice: kernel, table"):
        load_objects([compiled(KERNEL), compiled(KERNEL)])


def test_unknown_names_are_refused() -> None:
    with pytest.raises(LoadError, match="does not define 'nothing'; it defines kernel, table"):
        load_objects([compiled(KERNEL)]).address("nothing")


def test_objects_for_another_processor_are_refused() -> None:
    arm = compile_llvm("define void @f() {\n  ret void\n}", Machine("aarch64-linux-gnu"))
    other = compile_llvm("define void @f() {\n  ret void\n}", Machine("x86_64-linux-gnu"))
    here = host_machine().architecture
    with pytest.raises(LoadError, match=r"made for (aarch64|x86_64)"):
        load_objects([arm if here == "x86_64" else other])


@pytest.mark.parametrize("size", [0, 3, 20, 63, 64, 200])
def test_damaged_objects_are_refused(size: int) -> None:
    with pytest.raises(LoadError, match="cannot load object 0"):
        load_objects([compiled(KERNEL)[:size]])


def test_symbols_of_an_object() -> None:
    symbols = read_object(compiled(KERNEL))
    assert sorted(symbols.defined) == ["kernel", "table"]
    assert symbols.undefined == ("floorf",)


def test_other_formats_are_not_elf() -> None:
    with pytest.raises(NotElfError, match="not a 64-bit little-endian ELF"):
        read_object(compile_llvm(KERNEL, Machine("arm64-apple-macosx14.0.0")))
