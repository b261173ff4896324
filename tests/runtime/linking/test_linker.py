"""Objects of a C compiler, linked in memory: data, tables of addresses, far calls, refusals."""

import ctypes
import platform
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from modelcc.runtime.errors import LoadError
from modelcc.runtime.linking.elf import read_object
from modelcc.runtime.loader import load_objects

CC = shutil.which("cc") or ""
pytestmark = pytest.mark.skipif(
    not CC or platform.machine() != "x86_64", reason="needs a C compiler for x86-64"
)

LIBRARY = """
#include <math.h>
#include <string.h>
int counter = 40;
static long zeros[1000];
static const char *const words[] = {"one", "two", "three"};
double hypotenuse(double a, double b) { return hypot(a, b); }
long length(int word) { return strlen(words[word]); }
int bump(void) { zeros[7]++; return ++counter + (int)zeros[7]; }
"""
CALLER = """
extern int counter;
extern int bump(void);
typedef int function(void);
function *address(void) { return &bump; }
int twice(void) { return address()() + bump() + counter; }
"""


def address_of(name: str) -> int:
    """Where the C library has a function."""
    found = next(f for f in (getattr(ctypes.CDLL(n), name, None) for n in (None, "libm.so.6")) if f)
    return ctypes.cast(found, ctypes.c_void_p).value or 0


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., bytes]:
    folder = tmp_path_factory.mktemp("objects")

    def make(text: str, *flags: str) -> bytes:
        source, target = folder / "part.c", folder / "part.o"
        source.write_text(text)
        subprocess.run([CC, "-c", "-fPIC", *flags, "-o", target, source], check=True)
        return target.read_bytes()

    return make


@pytest.mark.parametrize("level", ["-O0", "-O2"])
@pytest.mark.parametrize("plt", ["-fplt", "-fno-plt"])
def test_data_and_calls(compiled: Callable[..., bytes], level: str, plt: str) -> None:
    objects = [compiled(CALLER, level, plt), compiled(LIBRARY, level, plt)]
    code = load_objects(objects, {"hypot": address_of("hypot"), "strlen": address_of("strlen")})
    hypotenuse = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double, ctypes.c_double)
    assert hypotenuse(code.address("hypotenuse"))(3.0, 4.0) == 5.0
    length = ctypes.CFUNCTYPE(ctypes.c_long, ctypes.c_int)(code.address("length"))
    assert [length(n) for n in range(3)] == [3, 3, 5]
    assert ctypes.CFUNCTYPE(ctypes.c_int)(code.address("twice"))() == 42 + 44 + 42
    assert ctypes.c_int.from_address(code.address("counter")).value == 42


def test_constants_cannot_be_written(compiled: Callable[..., bytes]) -> None:
    code = load_objects([compiled("const int constant[4] = {1, 2, 3, 4};")])
    address = code.address("constant")
    with open("/proc/self/maps") as maps:
        ranges = [line.split()[:2] for line in maps]
    modes = [
        mode
        for span, mode in ranges
        if int(span.split("-")[0], 16) <= address < int(span.split("-")[1], 16)
    ]
    assert modes == ["r--p"]


def test_thread_local_variables_are_refused(compiled: Callable[..., bytes]) -> None:
    with pytest.raises(LoadError, match="thread-local"):
        text = "_Thread_local int x = 1; int f(void) { return x; }"
        load_objects([compiled(text)], {"__tls_get_addr": 1})


@pytest.mark.skipif(shutil.which("nm") is None, reason="needs nm")
def test_object_files_are_read_as_binutils_reads_them(
    compiled: Callable[..., bytes], tmp_path: Path
) -> None:
    path = tmp_path / "part.o"
    path.write_bytes(compiled(LIBRARY))
    listed = subprocess.run(["nm", "-g", path], capture_output=True, text=True, check=True)
    lines = [line.split() for line in listed.stdout.splitlines()]
    found = read_object(path.read_bytes())
    assert sorted(found.defined) == sorted(line[2] for line in lines if len(line) == 3)
    assert {line[1] for line in lines if line[0] == "U"} - set(found.undefined) <= {
        "_GLOBAL_OFFSET_TABLE_"
    }
