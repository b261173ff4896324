"""LLVM text to machine code, for this machine and for others."""

import ctypes
import doctest
import re
from typing import Any

import numpy as np
import pytest
from loop_programs import aligned

from modelcc.runtime.loader import load_objects
from modelcc.targets.native import diagnostics, machine
from modelcc.targets.native.diagnostics import CodegenError
from modelcc.targets.native.machine import Machine, function_attributes, simd_bits, tuning_cpu
from modelcc.targets.native.toolchain import (
    CodegenOptions,
    assembly,
    compile_llvm,
    host_machine,
    llvm_version,
)

AXPY = """
define void @axpy(ptr noalias %x, ptr noalias %y, float %a, i64 %n) {
entry:
  %sum = alloca float, align 4
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %px = getelementptr inbounds float, ptr %x, i64 %i
  %py = getelementptr inbounds float, ptr %y, i64 %i
  %vx = load float, ptr %px, align 4
  %vy = load float, ptr %py, align 4
  store float %vy, ptr %sum, align 4
  %ax = fmul contract float %a, %vx
  %old = load float, ptr %sum, align 4
  %new = fadd contract float %old, %ax
  store float %new, ptr %py, align 4
  %next = add nuw nsw i64 %i, 1
  %more = icmp ult i64 %next, %n
  br i1 %more, label %loop, label %exit
exit:
  ret void
}
"""

# A 1x14x2 tile whose accumulators live in allocas, the reduction unrolled by 16.
TILE_ROWS, TILE_VECTORS, UNROLL = 14, 2, 16


def tile_kernel(attributes: str) -> str:
    """Micro-kernel C[14][32] += A[14][k] * B[k][32], k in steps of 16."""
    vector = "<16 x float>"
    lines = [
        f"declare {vector} @llvm.fma.v16f32({vector}, {vector}, {vector})",
        "define void @tile(ptr noalias %a, ptr noalias %b, ptr noalias %c, i64 %k) #0 {",
        "entry:",
    ]
    tiles = [(i, j) for i in range(TILE_ROWS) for j in range(TILE_VECTORS)]
    for i, j in tiles:
        lines += [
            f"%acc{i}_{j} = alloca {vector}, align 64",
            f"store {vector} zeroinitializer, ptr %acc{i}_{j}, align 64",
        ]
    lines += ["br label %loop", "loop:", "%s = phi i64 [ 0, %entry ], [ %next, %loop ]"]
    for u in range(UNROLL):
        lines.append(f"%row{u} = mul nuw nsw i64 %s, 32")
        for j in range(TILE_VECTORS):
            lines += [
                f"%at{u}_{j} = add nuw nsw i64 %row{u}, {32 * u + 16 * j}",
                f"%pb{u}_{j} = getelementptr inbounds float, ptr %b, i64 %at{u}_{j}",
                f"%b{u}_{j} = load {vector}, ptr %pb{u}_{j}, align 64",
            ]
        for i in range(TILE_ROWS):
            lines += [
                f"%ia{u}_{i} = add nuw nsw i64 %s, {1024 * i + u}",
                f"%pa{u}_{i} = getelementptr inbounds float, ptr %a, i64 %ia{u}_{i}",
                f"%a{u}_{i} = load float, ptr %pa{u}_{i}, align 4",
                f"%e{u}_{i} = insertelement {vector} poison, float %a{u}_{i}, i64 0",
                f"%s{u}_{i} = shufflevector {vector} %e{u}_{i}, {vector} poison, "
                "<16 x i32> zeroinitializer",
            ]
            for j in range(TILE_VECTORS):
                n = f"{u}_{i}_{j}"
                lines += [
                    f"%o{n} = load {vector}, ptr %acc{i}_{j}, align 64",
                    f"%n{n} = call {vector} @llvm.fma.v16f32("
                    f"{vector} %s{u}_{i}, {vector} %b{u}_{j}, {vector} %o{n})",
                    f"store {vector} %n{n}, ptr %acc{i}_{j}, align 64",
                ]
    lines += [
        f"%next = add nuw nsw i64 %s, {UNROLL}",
        "%more = icmp ult i64 %next, %k",
        "br i1 %more, label %loop, label %exit",
        "exit:",
    ]
    for i, j in tiles:
        lines += [
            f"%r{i}_{j} = load {vector}, ptr %acc{i}_{j}, align 64",
            f"%pc{i}_{j} = getelementptr inbounds float, ptr %c, i64 {32 * i + 16 * j}",
            f"store {vector} %r{i}_{j}, ptr %pc{i}_{j}, align 64",
        ]
    return "\n".join([*lines, "ret void", "}", f"attributes #0 = {{ {attributes} }}", ""])


@pytest.mark.parametrize("optimize", [0, 1, 2, 3])
def test_compiled_code_computes(optimize: Any) -> None:
    contents = compile_llvm(AXPY, host_machine(), CodegenOptions(optimize=optimize))
    code = load_objects([contents])
    signature = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_float, ctypes.c_int64)
    axpy = ctypes.CFUNCTYPE(None, *signature)(code.address("axpy"))
    x, y = np.arange(33, dtype=np.float32), np.ones(33, np.float32)
    axpy(x.ctypes.data, y.ctypes.data, 2.0, 33)
    np.testing.assert_array_equal(y, 1 + 2 * np.arange(33, dtype=np.float32))


def test_same_text_gives_the_same_object() -> None:
    here = host_machine()
    assert compile_llvm(AXPY, here) == compile_llvm(AXPY, here)


@pytest.mark.parametrize("optimize", [1, 2])
def test_28_accumulators_stay_in_registers(optimize: Any) -> None:
    here = Machine("x86_64-linux-gnu", "znver5", vector_bits=512, features=("+avx512f",))
    text = tile_kernel(function_attributes(here))
    code = assembly(text, here, CodegenOptions(optimize=optimize))
    assert len(re.findall(r"vfm\w+231ps", code)) >= TILE_ROWS * TILE_VECTORS * UNROLL
    spills = [line for line in code.splitlines() if "zmm" in line and "(%rsp)" in line]
    assert spills == []


def test_tile_kernel_matches_numpy() -> None:
    here = host_machine()
    code = load_objects([compile_llvm(tile_kernel(function_attributes(here)), here)])
    tile = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3, ctypes.c_int64)(code.address("tile"))
    rng = np.random.default_rng(0)
    a = rng.standard_normal((TILE_ROWS, 1024)).astype(np.float32)
    b = aligned(rng.standard_normal((64, 32)).astype(np.float32))
    c = aligned(np.zeros((TILE_ROWS, 32), np.float32))
    tile(a.ctypes.data, b.ctypes.data, c.ctypes.data, 64)
    np.testing.assert_allclose(c, a[:, :64] @ b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("target", "magic"),
    [
        (Machine("aarch64-unknown-linux-gnu", "cortex-a76"), b"\x7fELF\x02"),
        (Machine("riscv64-unknown-linux-gnu", "", ("+m", "+d", "+v")), b"\x7fELF\x02"),
        (Machine("thumbv7em-none-eabihf", "cortex-m4"), b"\x7fELF\x01"),
        (Machine("wasm32-unknown-unknown", "", ("+simd128",)), b"\0asm"),
        (Machine("arm64-apple-macosx14.0.0", "apple-m1"), b"\xcf\xfa\xed\xfe"),
    ],
    ids=lambda value: value.architecture if isinstance(value, Machine) else "",
)
def test_other_machines(target: Any, magic: Any) -> None:
    assert compile_llvm(AXPY, target).startswith(magic)


def test_ptx() -> None:
    text = AXPY.replace("define void", "define ptx_kernel void")
    ptx = assembly(text, Machine("nvptx64-nvidia-cuda", "sm_90"))
    assert ".entry axpy" in ptx
    assert ".target sm_90" in ptx


def test_parse_error_shows_the_line() -> None:
    text = "define i32 @f(i32 %a) {\nentry:\n  %y = add i33 %a, 1\n  ret i32 %y\n}\n"
    with pytest.raises(CodegenError) as caught:
        compile_llvm(text, host_machine())
    assert str(caught.value) == (
        "LLVM cannot parse the module: '%a' defined with type 'i32' but expected 'i33', "
        "at line 3:\n"
        "    1 | define i32 @f(i32 %a) {\n"
        "    2 | entry:\n"
        "    3 |   %y = add i33 %a, 1\n"
        "      |                ^"
    )


def test_verifier_error_shows_the_line() -> None:
    text = "define i32 @f(i32 %a) {\n  %y = add i32 %z, 1\n  %z = add i32 %a, 1\n  ret i32 %y\n}\n"
    with pytest.raises(CodegenError, match="does not dominate all uses") as caught:
        compile_llvm(text, host_machine())
    assert "    2 |   %y = add i32 %z, 1" in str(caught.value)


def test_unknown_triple_is_refused() -> None:
    with pytest.raises(CodegenError, match="cannot generate code for 'abacus-none'"):
        compile_llvm(AXPY, Machine("abacus-none"))


def test_module_for_another_machine_is_refused() -> None:
    text = 'target triple = "aarch64-unknown-linux-gnu"\n' + AXPY
    with pytest.raises(CodegenError, match="written for 'aarch64-unknown-linux-gnu'"):
        compile_llvm(text, host_machine())


def test_features_need_a_sign() -> None:
    with pytest.raises(ValueError, match=r"need a sign.*avx2"):
        Machine("x86_64-linux-gnu", features=("avx2",))


@pytest.mark.parametrize(
    ("triple", "features", "bits"),
    [
        ("x86_64-linux-gnu", ("+avx512f", "+avx", "+sse"), 512),
        ("x86_64-linux-gnu", ("+avx", "+avx2", "+sse", "-avx512f"), 256),
        ("x86_64-linux-gnu", (), 128),
        ("aarch64-linux-gnu", (), 128),
        ("thumbv7em-none-eabi", (), 0),
        ("wasm32-unknown-unknown", ("+simd128",), 128),
    ],
)
def test_simd_bits(triple: str, features: Any, bits: int) -> None:
    assert simd_bits(triple, features) == bits


def test_tuning_cpu_changes_only_avx512() -> None:
    assert tuning_cpu(Machine("x86_64-linux-gnu", "znver5", ("+avx512f",))) == "sapphirerapids"
    assert tuning_cpu(Machine("x86_64-linux-gnu", "znver2", ("+avx2",))) == "znver2"
    assert tuning_cpu(Machine("aarch64-linux-gnu", "cortex-a76")) == "cortex-a76"


def test_llvm_version() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", llvm_version())


@pytest.mark.parametrize("module", [machine, diagnostics])
def test_docstrings(module: Any) -> None:
    assert doctest.testmod(module).failed == 0
