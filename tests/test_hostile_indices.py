"""Indices from data that are out of range end the run, on every level, and touch no memory.

Inputs end where a page begins that nobody may read: what is read past them kills the process.
"""

import ctypes
import mmap
import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import modelcc
from modelcc.driver import compile_model
from modelcc.ir.builder import GraphBuilder
from modelcc.ir.errors import ModelError
from modelcc.ir.index import Sym
from modelcc.ir.program import Program, index_bounds
from modelcc.ir.program_interpreter import interpret_program
from modelcc.ir.program_parser import parse_program
from modelcc.ir.program_text import print_program
from modelcc.ir.tensor import TensorProgram
from modelcc.ir.tensor_interpreter import run_program
from modelcc.ir.tensor_parser import parse_tensor_program
from modelcc.ir.tensor_text import print_tensor_program
from modelcc.ir.types import F32, I8, I16, U8, TensorType
from modelcc.ops.gather import Gather
from modelcc.pipeline import StageRun
from modelcc.runtime.errors import RunError
from tests.machines import chosen_options

PAGE = mmap.PAGESIZE
HOSTILE = (-(2**63), -(2**31) - 1, 2**31, 2**62, 2**63 - 1)
F = np.float32
WIDE = 37  # more than a vector, and no multiple of one


@dataclass(frozen=True)
class Case:
    """A node, its inputs, the one of indices and where in it the hostile one goes."""

    op: str
    feeds: tuple[np.ndarray, ...]
    index: int
    place: tuple[int, ...]
    wrong: tuple[int, ...]
    """The nearest values that are out of range; far ones are tried as well."""
    attributes: dict[str, Any] = field(default_factory=dict[str, Any])
    domain: str = ""
    opset: int = 24
    outputs: int = 1
    named: tuple[int, ...] = ()
    """Inputs whose first dimension has a name where dimensions are named."""

    @property
    def id(self) -> str:
        return f"{self.op}{self.feeds[0].ndim}{sorted(self.attributes.values(), key=str)}"


def ramp(*shape: int) -> np.ndarray:
    return (np.arange(np.prod(shape)) % 97 / 8).astype(F).reshape(shape)


def numbers(*shape: int, below: int, dtype: type = np.int64) -> np.ndarray:
    """Indices from the front and from the back."""
    return (np.arange(np.prod(shape)) % (2 * below) - below).astype(dtype).reshape(shape)


def places(*shape: int, below: int, dtype: type = np.int64) -> np.ndarray:
    return (np.arange(np.prod(shape)) % below).astype(dtype).reshape(shape)


ML: dict[str, Any] = {"domain": "ai.onnx.ml"}
MS: dict[str, Any] = {"domain": "com.microsoft"}
BOXES = np.array([[0, 0, 3, 3], [1, 0, 2, 3]], F)
CASES = (
    Case("Gather", (ramp(5, 8), numbers(WIDE, below=5)), 1, (36,), (5, -6), named=(1,)),
    Case("Gather", (ramp(5), numbers(WIDE, below=5)), 1, (20,), (5, -6), named=(1,)),
    Case("Gather", (ramp(3, 5), numbers(2, 3, below=5, dtype=np.int32)), 1, (1, 2), (5, -6),
         {"axis": 1}, named=(0,)),
    Case("GatherElements", (ramp(4, WIDE), numbers(3, WIDE, below=4)), 1, (2, 36), (4, -5),
         named=(1,)),
    Case("GatherElements", (ramp(3, 6), numbers(3, WIDE, below=6, dtype=np.int32)), 1, (1, 17),
         (6, -7), {"axis": 1}),
    Case("GatherND", (ramp(5, 6), numbers(WIDE, 2, below=5)), 1, (35, 0), (5, -6), named=(1,)),
    Case("GatherND", (ramp(5, 6, 9), numbers(7, 2, below=5)), 1, (6, 1), (6, -7), named=(1,)),
    Case("GatherND", (ramp(3, 4, 2), numbers(3, 1, below=4)), 1, (2, 0), (4, -5),
         {"batch_dims": 1}),
    Case("ScatterElements", (ramp(5, 3), numbers(4, 3, below=5), ramp(4, 3)), 1, (3, 2), (5, -6)),
    Case("ScatterElements", (ramp(3, 6), numbers(3, 4, below=6), ramp(3, 4)), 1, (0, 3), (6, -7),
         {"axis": 1, "reduction": "add"}, named=(0, 1, 2)),
    Case("ScatterND", (ramp(6, 3), places(4, 1, below=4), ramp(4, 3)), 1, (2, 0), (6, -7),
         named=(1, 2)),
    Case("ScatterND", (ramp(6, 3), places(4, 2, below=3), ramp(4)), 1, (3, 1), (3, -4),
         {"reduction": "max"}),
    Case("ReverseSequence", (ramp(4, 3), places(3, below=4)), 1, (2,), (5, -1)),
    Case("ReverseSequence", (ramp(3, WIDE), places(3, below=4)), 1, (0,), (WIDE + 1, -1),
         {"batch_axis": 0, "time_axis": 1}, named=(0, 1)),
    Case("RoiAlign", (ramp(2, 3, 5, 5), BOXES, np.array([0, 1])), 2, (1,), (2, -1),
         {"output_height": 2, "output_width": 2, "sampling_ratio": 2}, opset=16),
    Case("MaxRoiPool", (ramp(2, 1, 5, 5), np.hstack([[[0], [1]], BOXES]).astype(F)), 1, (1, 0),
         (2, -1), {"pooled_shape": [2, 2]}),
    Case("RotaryEmbedding", (ramp(2, 2, 3, 4), ramp(9, 2), ramp(9, 2), places(2, 3, below=9)), 3,
         (1, 2), (9, -10)),
    Case("TensorScatter", (ramp(2, 6, 4), ramp(2, 2, 4), np.array([0, 4])), 2, (1,), (5, -1)),
    Case("MaxUnpool", (ramp(1, 1, 2, 2), np.array([[[[0, 3], [9, 15]]]])), 1, (0, 0, 1, 1),
         (16, -17), {"kernel_shape": [2, 2], "strides": [2, 2]}),
    Case("ArrayFeatureExtractor", (ramp(3, 5), np.array([0, 4])), 1, (1,), (5,), **ML),
    Case("EmbedLayerNormalization",
         (np.array([[1, 2, 3]], np.int32), np.array([[0, 1, 0]], np.int32), ramp(7, 8), ramp(4, 8),
          ramp(2, 8), ramp(8), ramp(8)), 0, (0, 2), (7,), outputs=2, **MS),
    Case("EmbedLayerNormalization",
         (np.array([[1, 2, 3]], np.int32), np.array([[0, 1, 0]], np.int32), ramp(7, 8), ramp(4, 8),
          ramp(2, 8), ramp(8), ramp(8)), 1, (0, 1), (2,), outputs=2, **MS),
    Case("RotaryEmbedding", (ramp(2, 3, 8), places(2, 3, below=9), ramp(9, 2), ramp(9, 2)), 1,
         (1, 2), (9,), {"num_heads": 2}, **MS),
)  # fmt: skip


def model_of(case: Case, named: bool = False) -> onnx.ModelProto:
    names = [f"in{n}" for n in range(len(case.feeds))]
    inputs = []
    for n, (name, array) in enumerate(zip(names, case.feeds, strict=True)):
        shape: list[int | str] = list(array.shape)
        if named and n in case.named:
            shape[0] = "n"
        dtype = helper.np_dtype_to_tensor_dtype(array.dtype)
        inputs.append(helper.make_tensor_value_info(name, dtype, shape))
    results = [f"y{n}" for n in range(case.outputs)]
    node = helper.make_node(
        case.op, names, results, "the_node", domain=case.domain, **case.attributes
    )
    outputs = [helper.make_tensor_value_info(y, TensorProto.UNDEFINED, None) for y in results]
    for output in outputs:
        output.ClearField("type")
    graph = helper.make_graph([node], "g", inputs, outputs)
    domains = [helper.make_opsetid("", case.opset if case.op != "MaxRoiPool" else 21)]
    if case.domain:
        domains.append(helper.make_opsetid(case.domain, 1))
    return helper.make_model(graph, opset_imports=domains, ir_version=10)


def guarded(array: np.ndarray) -> np.ndarray:
    """A copy that ends where a page begins that is not to be touched, as one ends before it."""
    size = -(-max(array.nbytes, 1) // PAGE) * PAGE
    memory = mmap.mmap(-1, size + 2 * PAGE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    libc = ctypes.CDLL(None, use_errno=True)
    for page in (start, start + PAGE + size):
        assert libc.mprotect(ctypes.c_void_p(page), ctypes.c_size_t(PAGE), 0) == 0
    offset = PAGE + size - array.nbytes
    copy = np.frombuffer(memory, array.dtype, array.size, offset).reshape(array.shape)
    copy[...] = array
    return copy


def hostile(case: Case) -> list[tuple[np.ndarray, ...]]:
    """Inputs with one index out of range."""
    dtype = case.feeds[case.index].dtype
    whole = None if dtype.kind == "f" else np.iinfo(dtype)
    far = [v for v in HOSTILE if whole is None or whole.min <= v <= whole.max]
    values = [*case.wrong, *far, *((np.nan, np.inf) if dtype.kind == "f" else ())]
    found = []
    for value in values:
        indices = case.feeds[case.index].copy()
        indices[case.place] = value
        found.append((*case.feeds[: case.index], indices, *case.feeds[case.index + 1 :]))
    return found


def all_of(result: Any) -> list[np.ndarray]:
    return list(result) if isinstance(result, tuple) else [result]


@pytest.mark.share(3, "case", "target", "threads", "named")
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.id)
@pytest.mark.parametrize(("target", "threads"), [("native", 1), ("native", 2), ("c", 2)])
@pytest.mark.parametrize("named", [False, True], ids=["static", "named"])
def test_compiled_code_refuses(case: Case, target: str, threads: int, named: bool) -> None:
    if named and not case.named:
        pytest.skip("the case has no dimension to name")
    net = modelcc.compile(model_of(case, named), target, threads=threads, cache=None)
    right = all_of(net(*case.feeds))
    for feeds in hostile(case):
        with pytest.raises(RunError, match=r"the_node.*: .* is outside of"):
            net(*map(guarded, feeds))
        for one, other in zip(all_of(net(*map(guarded, case.feeds))), right, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.id)
def test_interpreters_refuse(case: Case) -> None:
    programs: list[TensorProgram | Program] = []

    def note(run: StageRun) -> None:
        if isinstance(run.after, TensorProgram | Program):
            programs.append(run.after)

    compile_model(model_of(case), chosen_options(threads=1), observer=note)
    first = next(p for p in programs if isinstance(p, TensorProgram))
    last = next(p for p in programs[::-1] if isinstance(p, TensorProgram))
    program = programs[-1]
    assert isinstance(program, Program)
    assert index_bounds(program)
    digests = {c.digest: c for p in programs for c in p.constants.values()}
    assert parse_program(print_program(program), digests) == program
    for tensors in (first, last):
        assert parse_tensor_program(print_tensor_program(tensors), digests) == tensors
    for feeds in hostile(case):
        named = dict(zip(program.inputs, feeds, strict=True))
        for tensors in (first, last):
            with pytest.raises(ModelError, match="is outside of"):
                run_program(tensors, named, {})
        with pytest.raises(ModelError, match="is outside of"):
            interpret_program(program, named)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.id)
def test_results_in_range_are_those_of_onnxruntime(case: Case) -> None:
    runtime = pytest.importorskip("onnxruntime")
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = runtime.InferenceSession(
            model_of(case).SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:
        pytest.skip(f"onnxruntime has no {case.op}: {str(error)[:60]}")
    names = [i.name for i in session.get_inputs()]
    right = session.run(None, dict(zip(names, case.feeds, strict=True)))
    found = all_of(modelcc.compile(model_of(case), threads=1, cache=None)(*case.feeds))
    for one, other in zip(found, right, strict=False):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    for feeds in hostile(case)[:2]:
        with pytest.raises(Exception, match=r"."):
            session.run(None, dict(zip(names, feeds, strict=True)))


def gather(
    shape: tuple[int, ...], indices: np.ndarray | None, **known: np.ndarray
) -> onnx.ModelProto:
    """Gather of x, where ``known`` operands are constants."""
    inputs = [] if "x" in known else [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    if indices is not None:
        dtype = helper.np_dtype_to_tensor_dtype(indices.dtype)
        inputs.append(helper.make_tensor_value_info("i", dtype, indices.shape))
    constants = [numpy_helper.from_array(array, name) for name, array in known.items()]
    node = helper.make_node("Gather", ["x", "i"], ["y"], "embeddings/take")
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "g", inputs, [y], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def bounds_in(model: onnx.ModelProto, **options: object) -> int:
    """How many checks the compiled model makes."""
    compiled = compile_model(model, chosen_options(threads=1, **options))
    return len(compiled.artifact.manifest.indices)


def test_the_message_names_node_value_and_bound() -> None:
    net = modelcc.compile(gather((50257, 4), np.zeros(3, np.int64)), threads=1, cache=None)
    with pytest.raises(RunError) as raised:
        net(np.zeros((50257, 4), F), np.array([0, 50257, 1]))
    assert str(raised.value) == (
        "embeddings/take: index 50257 is outside of -50257 … 50256 (axis 0 of 'x', 50257 long)"
    )


@pytest.mark.parametrize(
    ("op", "feeds", "message"),
    [
        ("ReverseSequence", (ramp(4, 3), np.array([1, 5, 4])),
         "the_node: length 5 is outside of 0 … 4 (lengths from 0 to all of axis 0 of 'in0')"),
        ("TensorScatter", (ramp(2, 6, 4), ramp(2, 2, 4), np.array([0, 5])),
         "the_node: start 5 is outside of 0 … 4 (starts of an update along axis 1 of 'in0')"),
    ],
)  # fmt: skip
def test_the_message_tells_no_more_than_there_is(
    op: str, feeds: tuple[np.ndarray, ...], message: str
) -> None:
    net = modelcc.compile(model_of(Case(op, feeds, 0, (0,), ())), threads=1, cache=None)
    with pytest.raises(RunError, match=re.escape(message)):
        net(*feeds)


def test_constants_out_of_range_are_refused_when_compiled() -> None:
    with pytest.raises(ModelError, match=r"embeddings/take.*index 5 is outside of -5 … 4"):
        modelcc.compile(gather((5, 4), None, i=np.array([0, 5])), cache=None)
    with pytest.raises(ModelError, match="out of bounds"):
        modelcc.compile(gather((), None, i=np.array([0, 5]), x=np.zeros((5, 4), F)), cache=None)


BRANCHES = """<ir_version: 8, opset_import: ["" : 17]>
g (float[5, 4] x, bool c) => (float[2, 4] z) {
  z = If(c) <
    then_branch = t () => (float[2, 4] a) {
      i = Constant<value = int64[2] {0, LAST}>()
      a = Gather(x, i)
    },
    else_branch = e () => (float[2, 4] b) {
      j = Constant<value = int64[2] {1, 3}>()
      b = Gather(x, j)
    }>
}"""


def test_constants_of_branches_end_the_run_where_they_are_used() -> None:
    """A branch may never be taken; what is in range there is not checked at all."""
    assert bounds_in(onnx.parser.parse_model(BRANCHES.replace("LAST", "4"))) == 0
    model = onnx.parser.parse_model(BRANCHES.replace("LAST", "5"))
    net, x = modelcc.compile(model, threads=1, cache=None), np.ones((5, 4), F)
    assert np.asarray(net(x, np.array(False))).shape == (2, 4)
    with pytest.raises(RunError, match="index 5 is outside of -5 … 4"):
        net(x, np.array(True))


def test_what_is_known_to_be_in_range_is_not_checked() -> None:
    assert bounds_in(gather((5, 4), None, i=np.array([0, 4, -5]))) == 0
    assert bounds_in(gather((5, 4), np.zeros(3, np.int64))) == 1
    assert bounds_in(gather((5, 4), np.zeros(3, np.int64)), unchecked=True) == 0
    assert bounds_in(gather((256, 4), np.zeros(3, np.uint8).astype(np.int32))) == 1


def test_ranges_are_followed_through_what_makes_an_index() -> None:
    nodes = [
        helper.make_node("Mod", ["i", "n"], ["m"]),
        helper.make_node("Clip", ["i", "low", "high"], ["c"]),
        helper.make_node("Add", ["m", "c"], ["a"]),
        helper.make_node("Cast", ["b"], ["w"], to=TensorProto.INT64),
        *(helper.make_node("Gather", ["x", k], [f"y{k}"]) for k in "mcaw"),
    ]
    constants = {"n": np.array(7), "low": np.array(0), "high": np.array(9)}
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [256, 2]),
        helper.make_tensor_value_info("i", TensorProto.INT64, [40]),
        helper.make_tensor_value_info("b", TensorProto.UINT8, [40]),
    ]
    outputs = [helper.make_tensor_value_info(f"y{k}", TensorProto.FLOAT, [40, 2]) for k in "mcaw"]
    known = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, known)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    assert bounds_in(model) == 0


@pytest.mark.parametrize("last", [0, 1])
def test_the_place_of_an_extreme_element_is_one_of_its_row(last: int) -> None:
    nodes = [
        helper.make_node("ArgMax", ["s"], ["i"], axis=1, select_last_index=last),
        helper.make_node("Gather", ["x", "i"], ["y"]),
    ]
    inputs = [
        helper.make_tensor_value_info("s", TensorProto.FLOAT, ["n", 8]),
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [8, 2]),
    ]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", inputs, [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    assert bounds_in(model) == 0


NARROW = {
    "i8": (I8, np.int8, (127, 128, 129, 300)),
    "u8": (U8, np.uint8, (127, 255, 256, 300)),
    "i16": (I16, np.int16, (32767, 32768)),
}


@pytest.mark.parametrize("name", NARROW)
@pytest.mark.parametrize("named", [False, True])
def test_narrow_indices_do_not_wrap_around(name: str, named: bool) -> None:
    """The extent that is added to negative ones may be beyond their type."""
    dtype, array, extents = NARROW[name]
    info = np.iinfo(array)
    for extent in extents:
        build = GraphBuilder("g")
        x = build.input("x", TensorType((Sym("n") if named else extent,), F32))
        y = build.emit(Gather(0), x, build.input("i", TensorType((1,), dtype)))
        net = modelcc.compile(build.build([y]), threads=1, cache=None)
        table = np.arange(extent, dtype=F)
        for index in {0, info.max, min(extent - 1, info.max), max(info.min, -extent), info.min}:
            given = np.array([index], array)
            if -extent <= index < extent:
                assert np.asarray(net(table, given))[0] == table[index], (extent, index)
            else:
                with pytest.raises(RunError, match="is outside of"):
                    net(table, given)


def test_unchecked_code_computes_the_same() -> None:
    x, i = ramp(5, 8), numbers(WIDE, below=5)
    nets = [
        modelcc.compile(gather((5, 8), i), threads=1, cache=None, unchecked=unchecked)
        for unchecked in (False, True)
    ]
    checked, unchecked = (net(x, i) for net in nets)
    np.testing.assert_array_equal(checked, unchecked)
    np.testing.assert_array_equal(checked, x[i])


def test_an_index_made_of_nan_is_refused_or_in_range() -> None:
    nodes = [
        helper.make_node("Cast", ["f"], ["i"], to=TensorProto.INT64),
        helper.make_node("GatherElements", ["x", "i"], ["y"], "take"),
    ]
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [WIDE]) for n in "xf"]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [WIDE])
    graph = helper.make_graph(nodes, "g", inputs, [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    net = modelcc.compile(model, threads=1, cache=None)
    for value in (np.nan, np.inf, -np.inf, 1e30):
        with pytest.raises(RunError, match="take: index"):
            net(guarded(ramp(WIDE)), guarded(np.full(WIDE, value, F)))


def test_a_side_that_is_not_taken_raises_no_alarm() -> None:
    take = helper.make_graph(
        [helper.make_node("Gather", ["x", "i"], ["t"])], "then", [],
        [helper.make_tensor_value_info("t", TensorProto.FLOAT, None)],
    )  # fmt: skip
    keep = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["e"])], "else", [],
        [helper.make_tensor_value_info("e", TensorProto.FLOAT, None)],
    )  # fmt: skip
    node = helper.make_node("If", ["c"], ["y"], then_branch=take, else_branch=keep)
    inputs = [
        helper.make_tensor_value_info("c", TensorProto.BOOL, []),
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [4]),
        helper.make_tensor_value_info("i", TensorProto.INT64, [4]),
    ]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])
    graph = helper.make_graph([node], "g", inputs, [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    net = modelcc.compile(model, threads=1, cache=None)
    bad = np.array([0, 4, 1, 2])
    np.testing.assert_array_equal(net(np.array(False), ramp(4), bad), ramp(4))
    with pytest.raises(RunError, match="index 4 is outside"):
        net(np.array(True), ramp(4), bad)
