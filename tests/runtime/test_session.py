"""Sessions of small hand-written LLVM programs: calls, shapes, refusals, threads, memory."""

# pyright: reportPrivateUsage=false
# What a session plans and keeps has no other way to be seen.

import ctypes
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from constant_tables import constant_table

import modelcc
from modelcc.artifact.file import Artifact, write_artifact
from modelcc.artifact.manifest import DimSpec, MachineSpec, Manifest, TensorSpec
from modelcc.ir.index import Index, Sym, maximum
from modelcc.ir.types import BF16, F32, F64, I64
from modelcc.runtime.errors import InputError, LoadError, RunError
from modelcc.runtime.loader import NativeCode
from modelcc.runtime.opening import load
from modelcc.runtime.pool import PoolError
from modelcc.runtime.session import Session
from modelcc.targets.native.toolchain import compile_llvm, host_machine

N, M = Sym("n"), Sym("m")
HOST = host_machine()
MACHINE = MachineSpec(HOST.triple, HOST.cpu, HOST.features)

# y[i] = x[i] + b[0], by way of the arena; n elements
ADD = """
define i32 @add_run(ptr %inputs, ptr %outputs, ptr %constants, ptr %arena, ptr %sizes, ptr %pool) {
entry:
  %x = load ptr, ptr %inputs
  %y = load ptr, ptr %outputs
  %b.at = load ptr, ptr %constants
  %b = load float, ptr %b.at, align 64
  %n = load i64, ptr %sizes
  br label %fill
fill:
  %i = phi i64 [ 0, %entry ], [ %i.next, %fill ]
  %x.at = getelementptr float, ptr %x, i64 %i
  %v = load float, ptr %x.at
  %a.at = getelementptr float, ptr %arena, i64 %i
  store float %v, ptr %a.at
  %i.next = add i64 %i, 1
  %more = icmp slt i64 %i.next, %n
  br i1 %more, label %fill, label %drain
drain:
  %j = phi i64 [ 0, %fill ], [ %j.next, %drain ]
  %s.at = getelementptr float, ptr %arena, i64 %j
  %s = load float, ptr %s.at
  %r = fadd float %s, %b
  %y.at = getelementptr float, ptr %y, i64 %j
  store float %r, ptr %y.at
  %j.next = add i64 %j, 1
  %again = icmp slt i64 %j.next, %n
  br i1 %again, label %drain, label %done
done:
  ret i32 0
}
"""
# status 3; two inputs and two outputs, which are not touched
REFUSE = """
define i32 @refuse_run(ptr %i, ptr %o, ptr %c, ptr %a, ptr %s, ptr %p) {
  ret i32 3
}
"""
# out0 = in1[0], out1 = in0[0] and then in1[0] (notices when out0 overwrites an input)
SWAP = """
define i32 @swap_run(ptr %i, ptr %o, ptr %c, ptr %a, ptr %s, ptr %p) {
  %i1 = getelementptr ptr, ptr %i, i64 1
  %o1 = getelementptr ptr, ptr %o, i64 1
  %x = load ptr, ptr %i
  %y = load ptr, ptr %i1
  %first = load ptr, ptr %o
  %second = load ptr, ptr %o1
  %v = load double, ptr %y
  store double %v, ptr %first
  %u = load double, ptr %x
  store double %u, ptr %second
  ret i32 0
}
"""
# y[i] = i on the pool
COUNT = """
declare void @mcc_parallel_for(ptr, ptr, ptr, i64, i64)
define internal void @body(ptr %y, i64 %begin, i64 %end, i32 %thread) {
entry:
  br label %loop
loop:
  %i = phi i64 [ %begin, %entry ], [ %next, %loop ]
  %at = getelementptr i64, ptr %y, i64 %i
  store i64 %i, ptr %at
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %end
  br i1 %more, label %loop, label %done
done:
  ret void
}
define i32 @count_run(ptr %i, ptr %o, ptr %c, ptr %a, ptr %s, ptr %pool) {
  %y = load ptr, ptr %o
  call void @mcc_parallel_for(ptr %pool, ptr @body, ptr %y, i64 100, i64 1)
  ret i32 0
}
"""


def artifact(
    name: str, text: str, inputs: Any, outputs: Any, constants: Any = None, **rest: Any
) -> Artifact:
    arrays: dict[str, Any] = constants or {}
    manifest = Manifest(
        name=name,
        entry=f"{name}_run",
        inputs=inputs,
        outputs=outputs,
        machine=MACHINE,
        constants=constant_table(arrays),
        objects=("o",),
        **rest,
    )
    return Artifact(manifest, {"o": compile_llvm(text, HOST)}, arrays)


def add_artifact(extent: Index = N) -> Artifact:
    return artifact(
        "add",
        ADD,
        (TensorSpec("x", F32, (extent,)),),
        (TensorSpec("y", F32, (extent,)),),
        {"b": np.array([10], np.float32)},
        dims=(DimSpec("n", 1, 100_000),),
        definitions=(("at0", maximum(4 * N, 640)),),
        arena=Sym("at0") + 64,
    )


class Tensor:
    """An array of another library, known by the DLPack protocol alone."""

    def __init__(self, array: Any, refusal: Any = ""):
        self._array = array
        self._refusal = refusal

    def __dlpack__(self, **options: Any):
        if self._refusal:
            raise BufferError(self._refusal)
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()

    def __array__(self, dtype: Any = None, copy: Any = None):
        return np.asarray(self._array, dtype)


@pytest.fixture(scope="module")
def add():
    return Session(add_artifact())


@pytest.fixture(scope="module")
def swap():
    specs = (TensorSpec("a", F64, (1,)), TensorSpec("b", F64, (1,)))
    return Session(
        artifact("swap", SWAP, specs, (replace(specs[0], name="c"), replace(specs[1], name="d")))
    )


@pytest.mark.parametrize("size", [1, 5, 7, 40_000, 100_000, 3])
def test_any_size(add: Session, size: int) -> None:
    x = np.arange(size, dtype=np.float32)
    for _ in range(2):
        np.testing.assert_array_equal(add(x), x + 10)
    assert add.arena_size((size,)) == max(4 * size, 640) + 64


def test_results_are_new_arrays(add: Session) -> None:
    x = np.ones(3, np.float32)
    first, second = add(x), add(x + 1)
    np.testing.assert_array_equal(first, [11, 11, 11])
    np.testing.assert_array_equal(second, [12, 12, 12])
    assert np.asarray(add(np.ones(5000, np.float32))).ctypes.data % 64 == 0


def test_ways_to_give_inputs(swap: Session) -> None:
    a, b = np.array([1.0]), np.array([2.0])
    for results in (swap(a, b), swap(a, b=b), swap(b=b, a=a), swap({"a": a, "b": b})):
        assert [r.tolist() for r in results] == [[2.0], [1.0]]
    named = swap.run({"b": b, "a": a})
    assert {k: v.tolist() for k, v in named.items()} == {"c": [2.0], "d": [1.0]}


@pytest.mark.parametrize(
    "x",
    [
        np.arange(12, dtype=np.float32)[::3],
        np.arange(4, dtype=np.float32)[::-1],
        np.frombuffer(bytes(17), np.uint8)[1:].view(np.float32),
        np.frombuffer(b"\0\0\x80\x3f" * 4, np.float32),
        Tensor(np.arange(4, dtype=np.float32)),
        np.arange(4, dtype=np.float32).astype(">f4").astype("<f4"),
    ],
    ids=["strided", "reversed", "unaligned", "read-only", "tensor", "swapped"],
)
def test_arrays_of_all_kinds(add: Session, x: Any) -> None:
    np.testing.assert_array_equal(add(x), np.asarray(x) + 10)


def test_out_is_written_and_returned(add: Session, swap: Session) -> None:
    x, y = np.arange(4, dtype=np.float32), np.empty(4, np.float32)
    assert add(x, out=y) is y
    np.testing.assert_array_equal(y, x + 10)
    assert add.run({"x": x}, out={"y": y})["y"] is y
    d = np.empty(1)
    c, same = swap(np.array([1.0]), np.array([2.0]), out={"d": d})
    assert same is d and (c[0], d[0]) == (2.0, 1.0)


def test_out_may_be_an_input(swap: Session) -> None:
    a, b = np.array([1.0]), np.array([2.0])
    swap(a, b, out=[a, b])
    assert (a[0], b[0]) == (2.0, 1.0)


@pytest.mark.parametrize(
    ("out", "message"),
    [
        (np.empty(3, np.float32), r"output 'y': expected float32 array of shape \[4\], got .*3"),
        (np.empty(4), "got float64 of shape"),
        (np.empty(8, np.float32)[::2], "not contiguous"),
        (Tensor(np.empty(4, np.float32)), "got Tensor; give NumPy arrays"),
        ([], "1 arrays .y., got 0"),
        ({"z": np.empty(4, np.float32)}, "names of outputs .y., got 'z'"),
        (np.frombuffer(bytes(16), np.float32), "writable"),
    ],
)
def test_unusable_outs_are_refused(add: Session, out: Any, message: str) -> None:
    out = [out] if isinstance(out, Tensor) else out
    with pytest.raises(InputError, match=message):
        add(np.zeros(4, np.float32), out=out)


def test_outs_must_be_apart(swap: Session) -> None:
    c = np.empty(1)
    with pytest.raises(InputError, match="memory that output 'c' uses"):
        swap(np.ones(1), np.ones(1), out=[c, c])


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.zeros(4), r"input 'x': expected float32 elements, f32\[n\], got float64; convert it"),
        (np.zeros((2, 2), np.float32), r"expected 1 dimensions, f32\[n\], got 2, of shape"),
        ([1.0, 2.0], "got list; use numpy.asarray"),
        (None, "got NoneType"),
        (np.zeros(0, np.float32), "expected n = 1 to 100000, got 0"),
        (np.zeros(100_001, np.float32), "input 'x' axis 0: expected n = 1 to 100000, got 100001"),
        (
            Tensor(np.zeros(3, np.float32), "call detach() first"),
            "does not share its memory .*detach",
        ),
    ],
)
def test_unusable_inputs_are_refused(add: Session, x: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        add(x)
    np.testing.assert_array_equal(add(np.ones(2, np.float32)), [11, 11])


@pytest.mark.parametrize(
    ("arguments", "named", "message"),
    [
        ((), {}, r"expected swap\(a, b\), got no 'a', 'b'"),
        ((1,), {}, "got no 'b'"),
        ((1, 2, 3), {}, "expected 2 inputs, got 3"),
        ((1,), {"a": 2}, "input 'a': expected one value, got two"),
        ((1,), {"z": 2}, "got 'z'; check the name"),
    ],
)
def test_wrong_arguments_are_refused(
    swap: Session, arguments: Any, named: Any, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        swap(*arguments, **named)


def test_static_shapes_are_checked() -> None:
    session = Session(add_artifact(4))
    message = r"input 'x' axis 0: expected 4, got 5; the model was compiled for f32\[4\]; recompile"
    with pytest.raises(InputError, match=message):
        session(np.zeros(5, np.float32))


def shaped(*inputs: Any, dims: Any = ("n", "m")) -> Session:
    specs = tuple(TensorSpec(f"i{k}", F32, shape) for k, shape in enumerate(inputs))
    outputs = (TensorSpec("y", F32, (M * N, M + 1)), TensorSpec("z", BF16, (0, N)))
    return Session(
        artifact("refuse", REFUSE, specs, outputs, dims=tuple(DimSpec(name) for name in dims))
    )


def test_dimensions_are_solved_and_compared() -> None:
    session = shaped((M + N, 3), (2 * N,))
    signature = session._signature(((9, 3), (4,)))
    assert signature.sizes.tolist() == [2, 7]
    assert signature.outputs == ((14, 8), (0, 2))
    with pytest.raises(InputError, match=r"'i0' axis 0: expected m \+ n, got 9"):
        session._signature(((9, 3), (5,)))
    session = shaped((2 * N,), (N,))
    with pytest.raises(InputError, match=r"'i0' axis 0: expected 2\*n \(n is 2 by 'i1' axis 0\)"):
        session._signature(((5,), (2,)))
    session = shaped((N, M), (M, N))
    with pytest.raises(InputError, match=r"'i1' axis 0: expected m \(m is 3 by 'i0' axis 1\)"):
        session._signature(((2, 3), (4, 2)))


def test_dimensions_that_no_shape_tells() -> None:
    with pytest.raises(InputError, match="dimension 'm': expected an input that tells its size"):
        shaped((N,))._signature(((2,),))


def test_a_status_is_an_error() -> None:
    session = shaped((N, M))
    with pytest.raises(RunError, match="refuse stopped with status 3"):
        session(np.zeros((2, 3), np.float32))
    with pytest.raises(RunError, match="status 3"):
        session(np.zeros((2, 3), np.float32))


def test_types_outside_the_buffer_protocol() -> None:
    spec = TensorSpec("x", BF16, (4,))
    session = Session(artifact("swap", SWAP, (spec, spec), (spec, replace(spec, name="y"))))
    a, b = (np.full(4, v, ml_dtypes.bfloat16) for v in (1, 2))
    for _ in range(2):
        x, y = session(a, b)
        assert (x.tolist(), y.tolist()) == ([2] * 4, [1] * 4)
        assert x.dtype == ml_dtypes.bfloat16


def shared_model() -> onnx.ModelProto:
    """Several operators with parallel loops, and an index that is checked."""
    make = onnx.helper.make_tensor_value_info
    nodes = [
        onnx.helper.make_node("Gather", ["table", "ids"], ["rows"], "take"),
        onnx.helper.make_node("MatMul", ["rows", "w"], ["h"]),
        onnx.helper.make_node("Softmax", ["h"], ["p"], axis=-1),
        onnx.helper.make_node("MatMul", ["p", "w"], ["y"]),
    ]
    generator = np.random.default_rng(0)
    weights = [
        onnx.numpy_helper.from_array(generator.standard_normal(s).astype(np.float32), n)
        for n, s in (("table", (50, 128)), ("w", (128, 128)))
    ]
    ids = make("ids", onnx.TensorProto.INT64, ["n"])
    y = make("y", onnx.TensorProto.FLOAT, ["n", 128])
    graph = onnx.helper.make_graph(nodes, "shared", [ids], [y], weights)
    return onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=9
    )


@pytest.mark.parametrize("threads", [1, 2])
def test_many_threads_share_a_session(threads: int) -> None:
    """In parallel: all wait for each other first, and calls leave Python's lock for most of the
    time.  Some have an index out of range, which must not reach the results of others."""
    net = modelcc.compile(shared_model(), threads=threads, cache=None)
    assert any(b"mcc_parallel_for" in o for o in net._artifact.objects.values())
    sizes = (1, 7, 64, 300)
    given = {n: np.random.default_rng(n).integers(-50, 50, n) for n in sizes}
    right = {n: net(ids) for n, ids in given.items()}
    wrong: list[object] = []
    done: list[int] = []
    together = threading.Barrier(6)

    def work(seed: int) -> None:
        generator = np.random.default_rng(seed)
        together.wait()
        for size in generator.choice(sizes, 40).tolist():
            if seed % 3 == 0:
                ids = given[size].copy()
                ids[-1] = 50 + seed
                try:
                    net(ids)
                    wrong.append("no error")
                except RunError as error:
                    if f"take: index {50 + seed} is outside" not in str(error):
                        wrong.append(str(error))
            elif not np.array_equal(net(given[size]), right[size]):
                wrong.append(size)
            done.append(seed)

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong
    assert len(done) == 240


@pytest.mark.parametrize("threads", [2, 3])
def test_loops_run_on_the_pool(threads: int) -> None:
    count = artifact("count", COUNT, (), (TensorSpec("y", I64, (100,)),))
    session = Session(count, threads)
    np.testing.assert_array_equal(session(), np.arange(100))


def threads_of_this_process():
    """Others may end at any time, as those of sessions that are gone."""
    return {place.name for place in Path("/proc/self/task").iterdir()}


def test_code_without_parallel_loops_starts_no_threads() -> None:
    before = threads_of_this_process()
    session = Session(add_artifact(), 7)
    assert threads_of_this_process() <= before
    np.testing.assert_array_equal(session(np.ones(3, np.float32)), np.full(3, 11, np.float32))


def test_there_must_be_a_thread() -> None:
    with pytest.raises(PoolError, match="at least one thread, not 0"):
        Session(add_artifact(), 0)


def test_load_from_a_file(tmp_path: Path) -> None:
    write_artifact(tmp_path / "add.mcc", add_artifact())
    session = load(tmp_path / "add.mcc", threads=2, verify=True)
    (tmp_path / "add.mcc").unlink()
    np.testing.assert_array_equal(session(np.ones(3, np.float32)), [11, 11, 11])
    assert repr(session) == "<Session add(x: f32[n]) -> (y: f32[n])>"


def test_code_for_other_machines_is_refused() -> None:
    good = add_artifact()
    other = MachineSpec(HOST.triple, "future9", ("+avx2048", "-sse"))
    with pytest.raises(LoadError, match=r"compiled for future9, .* lacks avx2048; compile it on"):
        Session(Artifact(replace(good.manifest, machine=other), good.objects, good.constants))
    other = MachineSpec("riscv64-unknown-linux-gnu")
    with pytest.raises(LoadError, match="compiled for riscv64 and this machine is"):
        Session(Artifact(replace(good.manifest, machine=other), good.objects, good.constants))


def test_an_entry_point_elsewhere_takes_the_place_of_the_code() -> None:
    """As of an emulator: the artifact is for another machine, and so is its code."""
    made = add_artifact()
    other = replace(made.manifest, machine=MachineSpec("riscv64-unknown-linux-gnu"))

    def subtract(inputs: Any, outputs: Any, constants: Any, _arena: Any, sizes: Any, _pool: Any):
        n = ctypes.c_int64.from_address(sizes).value
        x, y, b = (ctypes.c_void_p.from_address(t).value for t in (inputs, outputs, constants))
        assert x and y and b
        offset = ctypes.c_float.from_address(b).value
        results = [value - offset for value in (ctypes.c_float * n).from_address(x)]
        (ctypes.c_float * n).from_address(y)[:] = results
        return 0

    entry = ctypes.CFUNCTYPE(ctypes.c_int32, *(ctypes.c_void_p,) * 6)(subtract)
    address = ctypes.cast(entry, ctypes.c_void_p).value
    assert address
    code = NativeCode(entry, {other.entry: address})
    session = Session(Artifact(other, {"o": b"for a device"}, made.constants), 2, code)
    np.testing.assert_array_equal(session(np.array([1, -3], np.float32)), [-9, -13])


def test_constants_are_copied_to_aligned_memory() -> None:
    weights = {"a": np.arange(3, dtype=np.float32), "b": np.arange(5.0), "c": np.arange(5.0)}
    session = Session(artifact("refuse", REFUSE, (), (), weights))
    addresses = list(session._table)
    assert addresses[1] == addresses[2] and all(a % 64 == 0 for a in addresses)
    assert ctypes.c_double.from_address(addresses[1] + 32).value == 4.0
