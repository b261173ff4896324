"""Modules as text, bytecode, exports and files; names, dimensions, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

jax: Any = pytest.importorskip("jax")

import modelcc  # noqa: E402
import modelcc.jax  # noqa: E402
from modelcc.frontends.kit.errors import UnsupportedModel  # noqa: E402
from modelcc.frontends.stablehlo import import_stablehlo  # noqa: E402
from modelcc.frontends.stablehlo.inputs import dimension  # noqa: E402
from modelcc.frontends.stablehlo.reading import read_text  # noqa: E402
from modelcc.ir.errors import ModelError  # noqa: E402
from modelcc.ir.index import Range, Sym, floordiv, maximum  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
jnp = jax.numpy


def doubled(x: Any, y: Any) -> Any:
    return jnp.concatenate([x, x]) + y


@pytest.fixture(scope="module")
def exported() -> Any:
    (rows,) = jax.export.symbolic_shape("rows")
    specs = [jax.ShapeDtypeStruct((n, 3), jnp.float32) for n in (rows, 2 * rows)]
    return jax.export.export(jax.jit(doubled))(*specs)


def check(model: Any, **options: Any) -> None:
    x, y = np.arange(6, dtype=np.float32).reshape(2, 3), np.ones((4, 3), np.float32)
    net = modelcc.compile(model, cache=None, **options)
    np.testing.assert_array_equal(net(x, y), doubled(x, y))


@pytest.mark.parametrize("form", ["object", "text", "bytecode", "export"])
def test_every_form_of_an_export(exported: Any, form: str, tmp_path: Path) -> None:
    if form == "object":
        return check(exported)
    suffix = {"text": ".mlir", "bytecode": ".mlirbc", "export": ".jax"}[form]
    path = tmp_path / f"model{suffix}"
    path.write_bytes(
        {
            "text": exported.mlir_module().encode(),
            "bytecode": exported.mlir_module_serialized,
            "export": bytes(exported.serialize()),
        }[form]
    )
    check(path)
    return check(path, dims={"rows": 2})


def test_bytes_as_jax_gives_them(exported: Any) -> None:
    for source in (exported.serialize(), bytearray(exported.mlir_module_serialized)):
        assert import_stablehlo(source).types["y"].shape[1] == 3
    check(bytearray(exported.mlir_module_serialized))


def test_texts_and_what_jax_serialises_are_compiled(exported: Any, tmp_path: Path) -> None:
    check(exported.mlir_module())
    check(exported.serialize())
    check(bytes(exported.serialize()))
    path = tmp_path / "module.mlir"
    path.write_text(exported.mlir_module())
    assert import_stablehlo(str(path)).types["y"].shape[1] == 3


def test_a_text_that_is_no_model_is_no_path() -> None:
    with pytest.raises(ModelError, match=r"is no path.*\n.*text of a StableHLO module"):
        modelcc.compile("def f(x):\n" + "    return x\n" * 500, cache=None)


def test_an_export_for_several_platforms_is_that_of_processors() -> None:
    def chosen(x: Any) -> Any:
        return jax.lax.platform_dependent(x, cpu=jnp.sin, default=jnp.cos)

    (n,) = jax.export.symbolic_shape("n")
    spec, x = jax.ShapeDtypeStruct((n,), np.float32), np.linspace(0, 1, 5, dtype=np.float32)
    for platforms, wanted in ((("cuda", "cpu"), np.sin), (("cuda", "tpu"), np.cos)):
        made = jax.export.export(jax.jit(chosen), platforms=platforms)(spec)
        net = modelcc.compile(made, cache=None)
        np.testing.assert_allclose(net(x), wanted(x), rtol=1e-6)


def test_sizes_that_are_solved_for() -> None:
    (n,) = jax.export.symbolic_shape("n")
    spec = jax.ShapeDtypeStruct((2 * n + 1,), np.float32)
    net = modelcc.compile(
        jax.export.export(jax.jit(lambda x: x[: x.shape[0] // 2]))(spec), cache=None
    )
    np.testing.assert_array_equal(net(np.arange(7, dtype=np.float32)), [0, 1, 2])
    with pytest.raises(modelcc.InputError, match="axis 0"):
        net(np.arange(6, dtype=np.float32))


def test_sizes_that_disagree_end_the_run(exported: Any) -> None:
    for model in (exported, exported.mlir_module_serialized):
        net = modelcc.compile(model, cache=None)
        with pytest.raises(modelcc.Error, match="rows"):
            net(np.zeros((2, 3), np.float32), np.zeros((5, 3), np.float32))


def test_names_are_those_of_the_program(exported: Any) -> None:
    graph = import_stablehlo(exported, {"rows": Range(1, 8)})
    assert graph.inputs == ("x", "y")
    assert graph.outputs == ("result",)
    assert graph.types["y"].shape == (2 * Sym("rows"), 3)
    assert graph.dims["rows"] == Range(1, 8)


def test_a_dimension_that_is_not_there_is_refused(exported: Any) -> None:
    with pytest.raises(ModelError, match="no dimension 'columns'"):
        import_stablehlo(exported, {"columns": 3})


@pytest.mark.parametrize(
    ("spelled", "meant"),
    [
        ("2*b + -1", 2 * Sym("b") - 1),
        ("b^2", Sym("b") * Sym("b")),
        ("floordiv(b, 2) - max(c, 3)", floordiv(Sym("b"), 2) - maximum(Sym("c"), 3)),
        (7, 7),
    ],
)
def test_dimensions_as_jax_spells_them(spelled: int | str, meant: object) -> None:
    assert dimension(spelled) == meant


def test_constants_of_every_type() -> None:
    for name in ("bfloat16", "float16", "int4", "uint2", "float8_e4m3fn", "bool", "complex64"):
        values = np.array([0, 1, 1, 0]).astype(jnp.dtype(name))
        text = str(jax.jit(lambda v=values: jnp.asarray(v)).lower().compiler_ir())
        (constant,) = (o for o in read_text(text).main.body.operations if "constant" in o.name)
        np.testing.assert_array_equal(constant.attributes["value"], values)


def test_a_newer_version_says_so(exported: Any) -> None:
    start = exported.mlir_module_serialized[:5]
    newer = start + b"StableHLO_v9.99.9\0 sections of another kind"
    with pytest.raises(ModelError, match=r"of StableHLO 9\.99"):
        import_stablehlo(newer)


@pytest.mark.parametrize("text", ["module {", "module { func.func @f() { return } }"])
def test_text_that_is_no_model(text: str) -> None:
    with pytest.raises(ModelError, match=r"StableHLO|no function @main"):
        import_stablehlo(text)


def test_a_file_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "model.mlirbc").write_bytes(b"\x80\x81 nonsense")
    with pytest.raises(ModelError, match="no StableHLO"):
        modelcc.compile(tmp_path / "model.mlirbc", cache=None)
    with pytest.raises(ModelError, match="No such file"):
        modelcc.compile(tmp_path / "missing.mlir", cache=None)


def decomposed(x: Any) -> Any:
    form, vectors = jax.lax.linalg.schur(x)
    return jnp.abs(jax.lax.complex(form, vectors)) + jax.lax.linalg.hessenberg(x)[0]


def test_all_that_cannot_be_imported_is_named_with_its_line() -> None:
    with pytest.raises(UnsupportedModel) as caught:
        modelcc.jax.compile(decomposed, np.eye(3, dtype=np.float32), cache=None)
    named = {node.operator.rpartition("@")[2] for node in caught.value.nodes}
    assert named == {"lapack_sgees_ffi", "lapack_sgehrd_ffi"}
    line = decomposed.__code__.co_firstlineno + 2
    assert f"test_reading.py:{line}" in str(caught.value)


def test_the_module_s_types_are_checked() -> None:
    text = "func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> { return %a : tensor<2xf32> }"
    assert import_stablehlo(text).outputs == ("result0",)
