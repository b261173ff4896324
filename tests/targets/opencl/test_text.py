"""What OpenCL C looks like, and what has no form in it."""

from __future__ import annotations

import pytest

from modelcc.ir.errors import ModelError
from modelcc.ir.loop_group_verifier import GroupLimits
from modelcc.ir.loop_parser import parse_function
from modelcc.targets.opencl.text import opencl_text


def test_golden() -> None:
    text = """func @halves(%x: f32[64*n], %kernel: mut f32[32*n]; n) {
      grid g in 0 .. n {
        shared %local: f32[64]
        thread ty in 0 .. 2 {
          thread tx in 0 .. 32 {
            local %own: f32[1]
            store %local[32*ty + tx] = load %x[64*g + 32*ty + tx]
            barrier
            if predicate(ty == 0) {
              store %own[0] = max(load %local[tx], load %local[tx + 32])
              store %kernel[32*g + tx] = load %own[0]
            }
          }
        }
      }
    }"""
    printed = opencl_text([parse_function(text)], GroupLimits())
    assert printed.endswith("""\
#define MCC_INLINE static inline

MCC_INLINE float f32_max(float a, float b)
{
    return (a > b) ? a : b;
}

__kernel __attribute__((reqd_work_group_size(32,2,1))) void halves(__global const float *restrict x,
    __global float *restrict kernel_1, int64_t n)
{
    const int64_t g = get_group_id(0);
    __local float local_1[64] __attribute__((aligned(64)));
    const int64_t ty = get_local_id(1);
    const int64_t tx = get_local_id(0);
    float own[1] __attribute__((aligned(64)));
    local_1[32 * ty + tx] = x[64 * g + 32 * ty + tx];
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (ty == 0) {
        own[0] = f32_max(local_1[tx], local_1[tx + 32]);
        kernel_1[32 * g + tx] = own[0];
    }
    (void)n;
}
""")


REFUSED = {
    "grid g in 0 .. 2 { thread t in 0 .. 4 { store %y[4*g] = f32x4(0.0) } }": "has no vectors",
    "grid g in 0 .. 2 { shared %s: f32[4] thread t in 0 .. 4 { copy %s[t] = %x[t] } }": (
        "has no 'copy"
    ),
    "grid g in 0 .. 2 { thread t in 0 .. 4 { register %a = load %x[0] x4 } }": "has no vectors",
    "for i in 0 .. 4 { store %y[i] = f32(0.0) }": "has kernels only, but @f has no grid",
    "parallel i in 0 .. 4 { store %y[i] = f32(0.0) }": "has kernels only, but @f has no grid",
    "grid g in 0 .. 2 { thread t in 0 .. 4 { store %z[t] = i4(1) } }": "cannot compute with i4",
    "grid g in 0 .. 2 { thread t in 0 .. 4 { for i in 0 .. t { barrier } } }": "only some threads",
    "grid g in 0 .. 2 { shared %s: f32[256] thread t in 0 .. 4 { } }": "shares 1024 bytes",
    "grid g in 0 .. 2 { thread t in 0 .. 65 { } }": "a group has 64 threads, not 65",
}


@pytest.mark.parametrize("body", REFUSED)
def test_what_has_no_form_is_refused(body: str) -> None:
    narrow = ", %z: mut i4[8]" if "%z" in body else ""
    text = f"func @f(%x: f32[8], %y: mut f32[8]{narrow}) {{ {body} }}"
    limits = GroupLimits(shared_bytes=1000, threads=64)
    with pytest.raises((ModelError, NotImplementedError, TypeError), match=REFUSED[body]):
        opencl_text([parse_function(text)], limits)


def test_an_index_outside_is_noted_behind_the_buffers() -> None:
    function = parse_function("""func @f(%x: i64[8], %y: mut i64[8]; n) {
      grid g in 0 .. 2 {
        thread t in 0 .. 4 {
          check load %x[t] below [n]
          store %y[4*g + t] = load %x[t]
        }
      }
    }""")
    text = opencl_text([function], GroupLimits(threads=64))
    assert "y, __global int64_t *restrict faults, int64_t n)" in " ".join(text.split())
    assert "faults[0] = 1;" in text
