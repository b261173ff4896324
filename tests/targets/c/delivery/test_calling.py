"""Programs of a caller's: two models in one, C++, sizes, statuses, processors."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from modelcc.ir.index import Range
from modelcc.targets.c.dialect import GNU
from modelcc.targets.c.toolchain import semantics
from tests.delivered import (
    WARNINGS,
    delivered,
    examples,
    large,
    mlp,
    needs_compiler,
    no_weights,
    options,
    run,
    run_time_sizes,
)

pytestmark = needs_compiler
CPP = ("-std=c++17", *WARNINGS, "-Wold-style-cast", "-Wzero-as-null-pointer-constant")

TWO_MODELS = """
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "one.h"
#include "two.h"

ONE_DEFINE_ARENA(first_scratch);

int main()
{
    std::vector<float> x(4 * 6), y(4 * 3), z(5 * 3), w(5 * 6);
    for (std::size_t i = 0; i < x.size(); i++) x[i] = 0.25f * static_cast<float>(i % 7) - 0.5f;
    for (std::size_t i = 0; i < w.size(); i++) w[i] = 0.25f * static_cast<float>(i % 7) - 0.5f;
    static_assert(ONE_INPUT_x_ELEMENTS == 24 && ONE_OUTPUT_y_BYTES == 48, "sizes are constants");
    const int extents[] = ONE_INPUT_x_DIMS;
    if (extents[0] != 4 || extents[1] != 6) return 2;

    const one_inputs in = {x.data()};
    one_outputs out = {y.data()};
    if (one_run(&in, &out, one_weights(), first_scratch, ONE_ARENA_BYTES) != ONE_OK) return 3;

    const two_dims dims = {5};
    const two_inputs more = {w.data()};
    two_outputs result = {z.data()};
    const std::int64_t bytes = two_arena_bytes(&dims);
    void *scratch = std::aligned_alloc(64, static_cast<std::size_t>(bytes + 63) / 64 * 64 + 64);
    const two_status status = two_run(&more, &result, &dims, two_weights(), scratch, bytes);
    std::free(scratch);
    if (status != TWO_OK) return 4;
    for (float value : y) std::printf("%.9g ", static_cast<double>(value));
    for (float value : z) std::printf("%.9g ", static_cast<double>(value));
    return 0;
}
"""


def compiled(folder: Path, *flags: str) -> list[str]:
    """Object files of a folder's C files but the example."""
    objects: list[str] = []
    for source in sorted(folder.glob("*.c")):
        if source.name != "main.c":
            run(["cc", *semantics(GNU), "-O1", *WARNINGS, *flags, "-c", source.name], folder)
            objects.append(str(source.with_suffix(".o")))
    return objects


@pytest.mark.skipif(not shutil.which("g++"), reason="there is no C++ compiler")
def test_two_models_in_one_cpp_program(tmp_path: Path) -> None:
    one = delivered(mlp(4), tmp_path / "one", "one", "array")
    two = delivered(mlp(seed=1), tmp_path / "two", "two", "incbin")
    objects = [*compiled(one.path), *compiled(two.path)]
    (tmp_path / "app.cc").write_text(TWO_MODELS)
    command = ["g++", *CPP, "-Ione", "-Itwo", "app.cc", *objects, "-o", "app", "-lm"]
    run(command, tmp_path)
    found = np.array(run(["./app"], tmp_path).split(), np.float32)
    wanted: list[float] = []
    for model, rows in ((mlp(4), 4), (mlp(seed=1), 5)):
        x = (0.25 * (np.arange(rows * 6) % 7) - 0.5).reshape(rows, 6)
        arrays = [np.frombuffer(t.raw_data, np.float32).reshape(t.dims)
                  for t in model.graph.initializer]  # fmt: skip
        w0, b0, w1 = arrays
        wanted += (np.maximum(x @ w0 + b0, 0) @ w1).ravel().tolist()
    np.testing.assert_allclose(found, wanted, 1e-5, 1e-5)


def test_all_that_others_see_has_the_models_name(tmp_path: Path) -> None:
    folder = delivered(large(), tmp_path, "net", "incbin", options(threads=2))
    for name in compiled(folder.path):
        seen = re.findall(r"^\S+ [A-TV-Z] (\S+)$", run(["nm", name], tmp_path), re.MULTILINE)
        assert seen
        assert all(symbol.startswith("net_") for symbol in seen), seen


@pytest.mark.skipif(not shutil.which("g++"), reason="there is no C++ compiler")
@pytest.mark.parametrize("make", [run_time_sizes, no_weights, large])
def test_the_header_is_c99_and_cpp(make: object, tmp_path: Path) -> None:
    folder = delivered(make(), tmp_path, settings=options(threads=2))  # type: ignore[operator]
    for command in (["gcc", "-std=c99", *WARNINGS], ["g++", *CPP], ["g++", "-std=c++11", *CPP[1:]]):
        name = "user.c" if command[0] == "gcc" else "user.cc"
        (folder.path / name).write_text('#include "net.h"\n#include "net.h"\n')
        run([*command, "-fsyntax-only", name], folder.path)


STATUSES = """
#include <stdio.h>
#include <stdlib.h>
#include "net.h"

static void show(net_status status)
{
    printf("%d %s\\n", (int)status, net_status_text(status));
}

int main(void)
{
    float x[8 * 6] = {0}, y[8 * 3];
    net_dims dims = {4};
    net_inputs in = {x};
    net_outputs out = {y};
    const void *weights = NULL;
    show(net_weights_open("none.bin", &weights));
    show(net_weights_open("net.c", &weights));
    show(net_weights_open("flipped.bin", &weights));
    show(net_weights_open("net_weights.bin", &weights));
    const int64_t bytes = net_arena_bytes(&dims);
    char *arena = aligned_alloc(64, (size_t)(bytes + 128) / 64 * 64);
    show(net_run(&in, &out, &dims, weights, arena, bytes));
    show(net_run(&in, NULL, &dims, weights, arena, bytes));
    show(net_run(&in, &out, &dims, weights, arena, bytes - 1));
    show(net_run(&in, &out, &dims, weights, arena + 8, bytes));
    show(net_run(&in, &out, &dims, (const char *)weights + 4, arena, bytes));
    in.x = NULL;
    show(net_run(&in, &out, &dims, weights, arena, bytes));
    in.x = x;
    dims.batch = -1;
    show(net_run(&in, &out, &dims, weights, arena, bytes));
    dims.batch = 9;
    show(net_run(&in, &out, &dims, weights, arena, bytes));
    printf("%d %d", (int)net_arena_bytes(&dims), (int)NET_INPUT_x_BYTES(&dims));
    free(arena);
    net_weights_close(weights);
    return 0;
}
"""


@pytest.mark.parametrize("reading", [(), ("-DNET_NO_MMAP",)])
def test_statuses(reading: tuple[str, ...], tmp_path: Path) -> None:
    settings = options(dims=(("batch", Range(1, 8)),))
    folder = delivered(mlp(), tmp_path, settings=settings)
    block = bytearray((tmp_path / "net_weights.bin").read_bytes())
    block[100] ^= 1
    (tmp_path / "flipped.bin").write_bytes(block)
    (tmp_path / "main.c").write_text(STATUSES)
    folder.build(flags=("-fsanitize=address,undefined", "-fno-sanitize-recover=all", *reading))
    lines = run(["./example"], tmp_path).splitlines()
    found = [int(line.split()[0]) for line in lines]
    assert found == [-6, -7, -7, 0, 0, -2, -4, -5, -5, -2, -3, -3, -1]
    assert "cannot be read" in lines[0]


def test_sizes_that_do_not_fit_are_seen(tmp_path: Path) -> None:
    folder = delivered(examples()["dynamic_image"].model, tmp_path)
    (tmp_path / "main.c").write_text(
        '#include <stdio.h>\n#include "net.h"\nint main(void) {\n'
        "net_dims dims = {1 << 30, INT64_C(1) << 40, 7};\n"
        'printf("%d %d", (int)net_arena_bytes(&dims), (int)NET_INPUT_x_ELEMENTS(&dims));\n'
        "return 0; }\n"
    )
    folder.build(flags=("-fsanitize=undefined", "-fno-sanitize-recover=all"))
    assert run(["./example"], tmp_path) == "-1 -1"


def test_constraints_on_data_are_statuses(tmp_path: Path) -> None:
    delivered(run_time_sizes(), tmp_path)
    text = (tmp_path / "net.h").read_text()
    assert "NET_CHECK_1 = 1" in text
    assert "NonZero" in text


def test_indices_out_of_range_are_statuses(tmp_path: Path) -> None:
    """A token beyond the vocabulary reads nothing, and the status names what is too short."""
    folder = delivered(examples()["attention"].model, tmp_path)
    folder.build(flags=("-fsanitize=address,undefined", "-fno-sanitize-recover=all"))
    for ids, good in (([0, 29, -30], True), ([0, 30, 0], False), ([0, -31, 1 << 60], False)):
        np.array(ids, np.int64).tofile(tmp_path / "ids.bin")
        words = ["-d", "batch=1", "-d", "seq=3", "-i", "ids=ids.bin"]
        done = subprocess.run(["./example", *words], cwd=tmp_path, capture_output=True,
                              text=True, check=False)  # fmt: skip
        assert (done.returncode == 0) == good, done.stderr
        if not good:
            assert done.stderr.startswith("net_run: the inputs do not meet what is asked of them, ")
            assert "index within -30 ... 29 (axis 0 of 'table')" in done.stderr


HOSTILE = """#include <stdio.h>
#include "net.h"
int main(void) {
    static float table[5 * 8], taken[3 * 8];
    const int64_t indices[3] = {0, INT64_C(1) << 40, -5};
    DEFINE
    net_inputs in = {table, indices};
    net_outputs out = {taken};
    net_status status = net_run(&in, &out, scratch, NET_ARENA_BYTES);
    printf("%d %s %lld", (int)status, net_status_text(status), (long long)*(int64_t *)scratch);
    return 0;
}
"""


def test_an_index_out_of_range_is_a_status(tmp_path: Path) -> None:
    make = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Gather", ["x", "i"], ["y"], "take")],
        "net",
        [make("x", TensorProto.FLOAT, [5, 8]), make("i", TensorProto.INT64, [3])],
        [make("y", TensorProto.FLOAT, [3, 8])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    folder = delivered(model, tmp_path)
    arena = "_Alignas(64) static unsigned char scratch[NET_ARENA_BYTES];"
    (tmp_path / "main.c").write_text(HOSTILE.replace("DEFINE", arena))
    folder.build(flags=("-std=c11", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"))
    said = run(["./example"], tmp_path)
    assert said.startswith("1 ")
    assert "take: index within -5 ... 4 (axis 0 of 'x')" in said
    assert said.endswith(str(2**40))


@pytest.mark.skipif(platform.machine() != "x86_64", reason="these are processors of x86-64")
@pytest.mark.parametrize(
    ("cpu", "wide", "refused"),
    [("portable", False, ()), ("x86-64-v2", False, ("-march=x86-64",)),
     ("x86-64-v3", True, ("-march=x86-64-v2",))],
)  # fmt: skip
def test_processors(cpu: str, wide: bool, refused: tuple[str, ...], tmp_path: Path) -> None:
    delivered(mlp(4), tmp_path, settings=options(cpu=cpu))
    flags = re.findall(r"-march=\S+", (tmp_path / "CMakeLists.txt").read_text())
    command = ["gcc", *semantics(GNU), "-O2", *flags, "-c", "net.c"]
    run(command, tmp_path)
    code = run(["objdump", "-d", "net.o"], tmp_path)
    assert "xmm" in code
    assert ("ymm" in code) == wide
    assert "zmm" not in code
    told = {"portable": "any x86_64"}.get(cpu, cpu)
    for name in ("net.h", "net.c"):
        assert f"Processor: {told};" in (tmp_path / name).read_text()
    for flag in refused:
        done = subprocess.run(["gcc", *semantics(GNU), flag, "-c", "net.c"], cwd=tmp_path,
                              capture_output=True, text=True, check=False)  # fmt: skip
        assert done.returncode
        assert f'#error "net.c is for {cpu}: compile it with -march={cpu}"' in done.stderr
        run(
            ["gcc", *semantics(GNU), flag, "-DNET_ANY_PROCESSOR", "-Wno-psabi", "-c", "net.c"],
            tmp_path,
        )


@pytest.mark.parametrize("name", ["odd_names", "no_inputs", "no_weights"])
@pytest.mark.parametrize(
    "command", [("gcc", "-std=c99", "-xc"), ("g++", "-std=c++11", "-xc++")], ids=lambda c: c[0]
)
def test_headers_may_follow_any_other(name: str, command: tuple[str, ...], tmp_path: Path) -> None:
    """Of the names in a header none is a macro of the library's."""
    if shutil.which(command[0]) is None:
        pytest.skip(f"there is no {command[0]}")
    delivered(examples()[name].model, tmp_path)
    others = "errno float inttypes limits math signal stdio stdlib string time"
    lines = [f"#include <{header}.h>" for header in others.split()]
    lines += ["#include <complex.h>"] if command[0] == "gcc" else []
    (tmp_path / "caller.c").write_text("\n".join([*lines, '#include "net.h"', "int caller;\n"]))
    strict = (*WARNINGS, "-Wconversion", "-Wshadow", "-Wbidi-chars=any", "-Wtrigraphs")
    run([*command, *strict, "-c", "caller.c", "-o", "caller.o"], tmp_path)
