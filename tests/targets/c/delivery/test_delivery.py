"""Delivered folders build without a warning and compute what a session does."""

from __future__ import annotations

import platform
import shutil
from pathlib import Path

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

import modelcc
from modelcc.ir.types import Array
from modelcc.targets.c.delivery.facts import WeightsForm
from tests.delivered import (
    COMPILERS,
    Example,
    delivered,
    examples,
    needs_compiler,
    no_weights,
    options,
    parsed,
    run,
)

pytestmark = needs_compiler
EXAMPLES = examples()
X86 = platform.machine() == "x86_64"


def reference(example: Example) -> dict[str, Array]:
    """What ONNX's own evaluator computes."""
    evaluator = ReferenceEvaluator(example.model)
    results = evaluator.run(None, dict(example.feeds))
    return {str(n): np.asarray(r) for n, r in zip(evaluator.output_names, results, strict=True)}


def assert_close(found: dict[str, Array], wanted: dict[str, Array]) -> None:
    for name, array in wanted.items():
        exact = array.dtype.kind in "iub"
        a, b = (x if exact else x.astype(np.float64) for x in (found[name], array))
        tolerance = 0 if exact else 0 if array.dtype.itemsize == 2 else 1e-5
        scale = 1 if exact else max(1.0, float(np.abs(b).max(initial=0)))
        np.testing.assert_allclose(a, b, 0, tolerance * scale, err_msg=name)


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_computes_what_the_reference_does(name: str, tmp_path: Path) -> None:
    example = EXAMPLES[name]
    folder = delivered(example.model, tmp_path)
    folder.build()
    wanted = reference(example)
    assert_close(folder.outputs(example.feeds, wanted, *example.words), wanted)


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("name", ["dynamic_image", "run_time_sizes", "quantised"])
def test_every_compiler_takes_it(name: str, compiler: str, tmp_path: Path) -> None:
    example = EXAMPLES[name]
    folder = delivered(example.model, tmp_path)
    wanted = reference(example)
    folder.build(compiler, ("-O2",))
    assert_close(folder.outputs(example.feeds, wanted, *example.words), wanted)


@pytest.mark.parametrize("name", ["conv_net", "attention", "halves"])
def test_results_are_those_of_a_session_with_the_same_c(name: str, tmp_path: Path) -> None:
    example = EXAMPLES[name]
    folder = delivered(example.model, tmp_path)
    net = modelcc.compile(example.model, target="c", cpu="portable", threads=1, cache=None)
    wanted = net.run(example.feeds)
    folder.build("cc", ("-O2", "-march=x86-64") if X86 else ("-O2",))
    found = folder.outputs(example.feeds, wanted, *example.words)
    for output, array in wanted.items():
        assert found[output].tobytes() == array.tobytes(), output


@pytest.mark.parametrize("name", ["mlp", "control", "run_time_sizes", "given_shape", "conv_net"])
def test_sanitizers_find_nothing(name: str, tmp_path: Path) -> None:
    example = EXAMPLES[name]
    folder = delivered(example.model, tmp_path)
    wanted = reference(example)
    folder.build("gcc", ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g"))
    assert_close(folder.outputs(example.feeds, wanted, *example.words), wanted)


@pytest.mark.parametrize("name", ["mlp", "conv_net", "attention", "quantised", "control"])
def test_plain_loops_compute_the_same(name: str, tmp_path: Path) -> None:
    example = EXAMPLES[name]
    folder = delivered(example.model, tmp_path, settings=options(optimize=0))
    wanted = reference(example)
    folder.build(flags=("-O0",))
    assert_close(folder.outputs(example.feeds, wanted, *example.words), wanted)


def test_level_0_has_plain_loops(tmp_path: Path) -> None:
    model = EXAMPLES["conv_net"].model
    texts = {}
    for level in (0, 1, 2):
        folder = delivered(model, tmp_path / str(level), settings=options(optimize=level))
        texts[level] = (folder.path / "net.c").read_text()
        assert f"-O{level} " in (folder.path / "CMakeLists.txt").read_text()
        assert f"(-O{level})" in texts[level]
    assert "vector_size" not in texts[0]
    assert "vector_size" in texts[1]
    assert len(texts[0]) < len(texts[2])


@pytest.mark.parametrize("weights", ["array", "incbin"])
@pytest.mark.parametrize("name", ["quantised", "conv_net"])
def test_weights_in_the_program(name: str, weights: WeightsForm, tmp_path: Path) -> None:
    example = EXAMPLES[name]
    folder = delivered(example.model, tmp_path, weights=weights)
    wanted = reference(example)
    program = folder.build()
    (tmp_path / "net_weights.bin").unlink(missing_ok=True)
    assert_close(folder.outputs(example.feeds, wanted, *example.words, program=program), wanted)


def test_odd_numbers_survive_in_arrays(tmp_path: Path) -> None:
    """The array has the bytes of the file, whatever they mean."""
    numbers = np.array([np.inf, -np.inf, 1e-45, -0.0, 3.4028235e38, 0.1], np.float32)
    arrays = {
        "f32": numbers, "f64": numbers.astype(np.float64) / 3,
        "i64": np.array([-(2**63), 2**63 - 1, 1 << 40, 0, -1, 5]),
        "i32": np.array([-(2**31), 2**31 - 1, 0, 1, 2, 3], np.int32),
        "u64": np.array([2**64 - 1, 0, 1, 2, 3, 4], np.uint64),
        "f16": np.array([np.inf, -np.inf, 6e-8, -0.0, 65504, 0.1], np.float16), "flag": numbers > 0,
        "i8": np.array([-128, 127, 0, 1, 2, 3], np.int8),
    }  # fmt: skip
    kinds = {"f32": "float", "f64": "double", "i64": "int64", "i32": "int32", "u64": "uint64",
             "f16": "float16", "flag": "bool", "i8": "int8"}  # fmt: skip
    inputs = ", ".join(f"{kind}[6] {name}_in" for name, kind in kinds.items())
    outputs = ", ".join(f"{kind}[6] {name}_out" for name, kind in kinds.items())
    nodes = "".join(f"{n}_out = Where (c, {n}, {n}_in)\n" for n in kinds)
    model = parsed(f"odd (bool[6] c, {inputs}) => ({outputs}) {{ {nodes} }}", arrays)
    example = Example(model, {"c": np.ones(6, bool), **{f"{n}_in": a for n, a in arrays.items()}})
    wanted = {f"{name}_out": array for name, array in arrays.items()}
    for weights in ("bin", "array"):
        folder = delivered(model, tmp_path / weights, weights=weights)
        folder.build()
        found = folder.outputs(example.feeds, wanted)
        for name, array in wanted.items():
            assert found[name].tobytes() == array.tobytes(), (weights, name)


def test_cmake_builds_it(tmp_path: Path) -> None:
    if not shutil.which("cmake"):
        pytest.skip("there is no cmake")
    example = EXAMPLES["large"]
    wanted = reference(example)
    forms: tuple[tuple[WeightsForm, int], ...] = (("bin", 2), ("incbin", 1))
    for weights, threads in forms:
        folder = delivered(
            example.model, tmp_path / weights, weights=weights, settings=options(threads=threads)
        )
        run(["cmake", "-B", "build", "-DCMAKE_BUILD_TYPE=Debug"], folder.path)
        log = run(["cmake", "--build", "build", "-v"], folder.path)
        assert " -O2 " in log
        found = folder.outputs(example.feeds, wanted, program=folder.path / "build/net_example")
        assert_close(found, wanted)


def test_any_number_of_threads(tmp_path: Path) -> None:
    example = EXAMPLES["large"]
    wanted = reference(example)
    folder = delivered(example.model, tmp_path, settings=options(threads=2))
    folder.build()
    for threads in (1, 2, 3):
        assert_close(folder.outputs(example.feeds, wanted, "-t", str(threads)), wanted)


def test_one_thread_needs_no_pool(tmp_path: Path) -> None:
    folder = delivered(EXAMPLES["large"].model, tmp_path)
    assert not list(tmp_path.glob("*pool*"))
    texts = [path.read_text() for path in tmp_path.glob("*.[ch]")]
    assert not any("pthread" in text for text in texts)
    folder.build()
    assert "pthread" not in run(["nm", "example"], tmp_path)


def test_the_text_is_the_same_byte_for_byte_and_formatted(tmp_path: Path) -> None:
    for name in ("quantised", "dynamic_image", "run_time_sizes", "no_weights"):
        example, settings = EXAMPLES[name], options(threads=2)
        folders = [
            delivered(example.model, tmp_path / f"{name}{n}", weights="array", settings=settings)
            for n in range(2)
        ]
        first, second = ({p.name: p.read_bytes() for p in f.path.iterdir()} for f in folders)
        assert first == second
        for file, contents in first.items():
            text = contents.decode()
            assert text.endswith("\n") and not text.endswith("\n\n")
            for line in text.splitlines():
                assert line == line.rstrip(), file
                assert len(line) <= 100, (file, line)


def test_steps_name_the_users_nodes(tmp_path: Path) -> None:
    delivered(no_weights(), tmp_path)
    assert "/* add * / / *" in (tmp_path / "net.c").read_text()
