"""Kernels as SPIR-V are what its validator takes."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from group_kernels import FIRST, grouped

from modelcc.ir.errors import ModelError
from modelcc.ir.loop_parser import parse_function
from modelcc.ir.op import Op, Sample
from modelcc.targets.gpu.machine import PROCESSOR
from modelcc.targets.opencl.spirv import spirv_module


@pytest.mark.skipif(not shutil.which("spirv-val"), reason="there is no spirv-val here")
@pytest.mark.share(24, "op")
@pytest.mark.parametrize(("op", "sample"), FIRST)
def test_every_op_is_valid(op: Op, sample: Sample, tmp_path: Path) -> None:
    try:
        functions = grouped(op, sample).functions
    except ModelError as error:
        assert "no schedule for Scatter" in str(error)
        return
    if functions:
        path = tmp_path / "kernels.spv"
        path.write_bytes(spirv_module(functions, PROCESSOR.limits))
        command = ["spirv-val", "--target-env", "opencl2.2", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_barriers_are_not_doubled_and_memory_has_a_place() -> None:
    """LLVM gives a branch that skips work a barrier of its own, where nobody forbids it."""
    function = parse_function("""func @halves(%x: f32[64*n], %y: mut f32[n]; n) {
      grid g in 0 .. n {
        shared %part: f32[64]
        thread t in 0 .. 64 {
          store %part[t] = load %x[64*g + t]
          barrier
          if predicate(t < 32) { store %part[t] = add(load %part[t], load %part[t + 32]) }
          barrier
          if predicate(t < 16) { store %part[t] = add(load %part[t], load %part[t + 16]) }
          barrier
          if predicate(t == 0) { store %y[g] = load %part[0] }
        }
      }
    }""")
    words = _words(spirv_module([function], PROCESSOR.limits))
    assert sum(word[0] == BARRIER for word in words) == 3
    spaces = {word[2] for word in words if word[0] == POINTER}
    assert FUNCTION not in spaces


def test_few_bits_of_an_index_are_no_byte() -> None:
    """LLVM 22 takes a truncation to two bits, as its loops have for ``mod 4``, for one to eight."""
    function = parse_function("""func @rows(%x: f32[65536], %w: f32[4096], %y: mut f32[128]) {
      grid g in 0 .. 1 {
        shared %s: f32[512]
        thread u in 0 .. 8 {
          thread t in 0 .. 16 {
            index a = index[i64](t floordiv 8 + 2*(u mod 4))
            index b = index[i64](t floordiv 8 + 2*u)
            register %sum = f32(0.0)
            for k in 0 .. 32 {
              index c = index[i64]((t + 16*u) floordiv 64 + 8*k)
              store %s[b + 17*(t mod 8)] = load %w[256*b + t mod 8 + 8*k]
              store %s[16*u + t] = load %x[32*a + 2*(t mod 8) + 256*c]
              store %s[16*u + t + 128] = load %x[32*a + 2*(t mod 8) + 256*c + 512]
              barrier
              %sum = add(%sum, load %s[u + 8*t])
              barrier
            }
            store %y[16*u + t] = %sum
          }
        }
      }
    }""")
    words = _words(spirv_module([function], PROCESSOR.limits))
    assert 255 not in {word[3] for word in words if word[0] == CONSTANT}


BARRIER, POINTER, CONSTANT, FUNCTION = 224, 32, 43, 7
"""Numbers of SPIR-V for ``OpControlBarrier``, ``OpTypePointer``, ``OpConstant`` and memory of a
thread alone."""


def _words(module: bytes) -> list[list[int]]:
    """Instructions: the kind, then operands."""
    numbers, found, at = np.frombuffer(module, np.uint32).tolist(), list[list[int]](), 5
    while at < len(numbers):
        count = numbers[at] >> 16
        found.append([numbers[at] & 0xFFFF, *numbers[at + 1 : at + count]])
        at += count
    return found
