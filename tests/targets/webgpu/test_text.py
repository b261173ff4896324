"""What shaders look like, and what has no form in WGSL."""

from __future__ import annotations

import pytest

from modelcc.ir.errors import ModelError
from modelcc.ir.loop_parser import parse_function
from modelcc.targets.webgpu.emitter import shader_of


def test_golden() -> None:
    text = """func @halves(%x: f32[64*n], %vec2: mut f32[32*n]; n) {
      grid g in 0 .. n {
        shared %local: f32[64]
        thread ty in 0 .. 2 {
          thread tx in 0 .. 32 {
            local %own: f32[1]
            store %local[32*ty + tx] = load %x[64*g + 32*ty + tx]
            barrier
            if predicate(ty == 0) {
              store %own[0] = max(load %local[tx], load %local[tx + 32])
              store %vec2[32*g + tx] = load %own[0]
            }
          }
        }
      }
    }"""
    assert (
        shader_of(parse_function(text)).text
        == """\
@group(0) @binding(0) var<storage, read_write> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> vec2_1: array<f32>;
struct mcc_Sizes { n: i32, }
@group(0) @binding(2) var<uniform> mcc_sizes: mcc_Sizes;
var<workgroup> local: array<f32, 64>;
fn f32_max(a: f32, b: f32) -> f32 {
    return select(b, a, a > b);
}
@compute @workgroup_size(32, 2, 1)
fn main(@builtin(workgroup_id) mcc_group: vec3<u32>,
        @builtin(local_invocation_id) mcc_thread: vec3<u32>) {
    let n = mcc_sizes.n;
    let group = i32(mcc_group.x) + 65535 * i32(mcc_group.y);
    if (group >= n) { return; }
    let g = group;
    let ty = i32(mcc_thread.y);
    let tx = i32(mcc_thread.x);
    var own: array<f32, 1>;
    local[32 * ty + tx] = x[64 * g + 32 * ty + tx];
    storageBarrier();
    workgroupBarrier();
    if ((ty == 0)) {
        own[0] = f32_max(local[tx], local[tx + 32]);
        vec2_1[32 * g + tx] = own[0];
    }
}
"""
    )


def test_one_memory_has_one_binding() -> None:
    text = """func @f(%x: shared f32[8], %n: i32[8], %y: shared mut i32[8]) {
      grid g in 0 .. 2 { thread t in 0 .. 4 {
        store %y[4*g + t] = add(convert[i32](load %x[4*g + t]), load %n[4*g + t])
      } }
    }"""
    shader = shader_of(parse_function(text), ((0, 2), (1,)))
    assert shader.text.count("@binding") == 2
    stored = "x[4 * g + t] = u32(i32(bitcast<f32>(x[4 * g + t])) + n[4 * g + t]);"
    assert stored in shader.text


REFUSED = {
    "for i in 0 .. 4 { store %y[i] = f32(0.0) }": "has kernels only, but @f has no grid",
    "grid g in 0 .. 2 { thread t in 0 .. 4 { store %z[t] = f64(1.0) } }": "cannot compute with f64",
    "grid g in 0 .. 2 { thread t in 0 .. 4 { for i in 0 .. t { barrier } } }": "only some threads",
    "grid g in 0 .. 2 { shared %s: f32[4097] thread t in 0 .. 4 { } }": "shares 16388 bytes",
    "grid g in 0 .. 2 { thread t in 0 .. 257 { } }": "a group has 256 threads, not 257",
}


@pytest.mark.parametrize("body", REFUSED)
def test_what_has_no_form_is_refused(body: str) -> None:
    wide = ", %z: mut f64[8]" if "%z" in body else ""
    text = f"func @f(%x: f32[8], %y: mut f32[8]{wide}) {{ {body} }}"
    with pytest.raises((ModelError, NotImplementedError, TypeError), match=REFUSED[body]):
        shader_of(parse_function(text))


def test_as_many_buffers_as_any_implementation_has() -> None:
    many = ", ".join(f"%x{n}: f32[8]" for n in range(8))
    text = f"func @f({many}, %y: mut f32[8]) {{ grid g in 0 .. 2 {{ thread t in 0 .. 4 {{ }} }} }}"
    with pytest.raises(NotImplementedError, match="takes 9 buffers, and WebGPU gives 8"):
        shader_of(parse_function(text))
