"""Sums over tiles that products make again: which kernels become one, and what stays."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from modelcc.ir.tensor import Kernel, TensorProgram
from modelcc.ir.tensor_interpreter import run_program
from modelcc.ir.tensor_parser import parse_tensor_program
from modelcc.ir.tensor_verifier import verify_tensor_program
from modelcc.passes.tensor.fuse_chains import FuseChains
from modelcc.passes.tensor.tile_chain import match_tile_chain

N, M, D, E = 40, 48, 4, 6


def program(outputs: str = "%x, %y, %z", more: str = "", weight: str = "%p[i, j]") -> TensorProgram:
    """Gradients of queries, keys and values, as fusion leaves them."""
    text = f"""program @main(%q: f32[{N}, {D}], %k: f32[{M}, {D}], %g: f32[{N}, {E}],
        %v: f32[{M}, {E}], %l: f32[{N}]) -> ({outputs}) {{
      kernel @A(%q: f32[{N}, {D}], %k: f32[{M}, {D}], %l: f32[{N}]) -> (%p: f32[{N}, {M}]) {{
        %s: f32[{N}, {M}] = [i < {N}, j < {M}] sum[d < {D}] %q[i, d] * %k[j, d]
        %p: f32[{N}, {M}] = [i < {N}, j < {M}] exp(%s[i, j] - %l[i])
      }}
      kernel @B(%g: f32[{N}, {E}], %v: f32[{M}, {E}], %p: f32[{N}, {M}]) -> (%w: f32[{N}, {M}]) {{
        %t: f32[{N}, {M}] = [i < {N}, j < {M}] sum[d < {E}] %g[i, d] * %v[j, d]
        %w: f32[{N}, {M}] = [i < {N}, j < {M}] {weight} * %t[i, j]
      }}
      kernel @C(%w: f32[{N}, {M}], %k: f32[{M}, {D}]) -> (%x: f32[{N}, {D}]) {{
        %x: f32[{N}, {D}] = [i < {N}, d < {D}] sum[j < {M}] %w[i, j] * %k[j, d]
      }}
      kernel @D(%w: f32[{N}, {M}], %q: f32[{N}, {D}]) -> (%y: f32[{M}, {D}]) {{
        %y: f32[{M}, {D}] = [j < {M}, d < {D}] sum[i < {N}] %w[i, j] * %q[i, d]
      }}
      kernel @E(%p: f32[{N}, {M}], %g: f32[{N}, {E}]) -> (%z: f32[{M}, {E}]) {{
        %z: f32[{M}, {E}] = [j < {M}, d < {E}] sum[i < {N}] %p[i, j] * %g[i, d]
      }}
      {more}
    }}"""
    found = parse_tensor_program(text, {})
    verify_tensor_program(found)
    return found


def names(found: TensorProgram) -> list[str]:
    return [item.name for item in found.items if isinstance(item, Kernel)]


def test_no_tile_is_stored() -> None:
    """Sums over keys are one kernel, those over queries another one, with the same results."""
    before = program()
    found = FuseChains()(before)
    verify_tensor_program(found)
    assert names(found) == ["A_B_C", "A_B_D_E"]
    kernels = [item for item in found.items if isinstance(item, Kernel)]
    assert [kernel.outputs for kernel in kernels] == [("x",), ("y", "z")]
    assert all(set(kernel.inputs) <= set(found.inputs) for kernel in kernels)
    rng = np.random.default_rng(1)
    feeds = {
        n: rng.standard_normal(before.types[n].static_shape()).astype(np.float32)
        for n in before.inputs
    }
    wanted, results = run_program(before, feeds, {}), run_program(found, feeds, {})
    for name, value in wanted.items():
        np.testing.assert_allclose(results[name], value, rtol=1e-5, atol=1e-5)


def test_a_tile_that_is_wanted_stays() -> None:
    """It is read where it is made again otherwise."""
    found = FuseChains()(program("%x, %y, %z, %p"))
    assert names(found) == ["A", "B_C", "B_D", "E"]
    assert all("p" in item.inputs for item in found.items[1:] if isinstance(item, Kernel))
    found = FuseChains()(program("%x, %y, %z, %w"))
    assert names(found) == names(program())


def test_a_tile_that_is_read_otherwise_stays() -> None:
    other = f"""kernel @F(%w: f32[{N}, {M}]) -> (%o: f32[{N}]) {{
      %o: f32[{N}] = [i < {N}] sum[j < {M}] %w[i, j] }}"""
    before = program("%x, %y, %z, %o", other)
    assert FuseChains()(before).items == before.items


def test_a_tile_that_is_read_at_another_place_stays() -> None:
    before = program(weight=f"%p[i, {M - 1} - j]")
    assert FuseChains()(before).items == before.items


@pytest.mark.parametrize("share", [6, 7])
def test_tiles_that_are_no_larger_than_their_factors_are_stored(share: int) -> None:
    """40 rows are more than 6 times 6 columns."""
    before = program()
    fused = FuseChains(share=share)(before).items != before.items
    assert fused == (share == 6)


def test_what_no_machine_has_a_schedule_for_stays() -> None:
    def without(outputs: tuple[str, ...]) -> Callable[[Kernel, TensorProgram], bool]:
        return lambda kernel, _: kernel.outputs != outputs

    before = program()
    assert FuseChains(without(("x",)))(before).items == before.items
    apart = FuseChains(without(("y", "z")))(before)
    assert names(apart) == ["A_B_C", "A_B_D", "A_E"]


def test_one_sum_of_one_product_is_left_to_others() -> None:
    text = f"""program @main(%q: f32[{N}, {D}], %k: f32[{M}, {D}]) -> (%x) {{
      kernel @A(%q: f32[{N}, {D}], %k: f32[{M}, {D}]) -> (%s: f32[{N}, {M}]) {{
        %s: f32[{N}, {M}] = [i < {N}, j < {M}] sum[d < {D}] %q[i, d] * %k[j, d] }}
      kernel @B(%s: f32[{N}, {M}], %k: f32[{M}, {D}]) -> (%x: f32[{N}, {D}]) {{
        %x: f32[{N}, {D}] = [i < {N}, d < {D}] sum[j < {M}] %s[i, j] * %k[j, d] }} }}"""
    before = parse_tensor_program(text, {})
    assert FuseChains()(before).items == before.items


def test_what_a_chain_is() -> None:
    """Products and weights over rows and keys, and sums with columns of their own."""
    last = FuseChains()(program()).items[-1]
    assert isinstance(last, Kernel)
    chain = match_tile_chain(last.stages, last.outputs, frozenset(("m",)))
    assert chain is not None
    assert (chain.row.name, chain.row.extent, chain.key.extent) == ("m_", M, N)
    assert [end.columns[0].extent for end in chain.ends] == [D, E]
    assert len(chain.products) == 2
    assert match_tile_chain(last.stages, last.outputs[::-1], frozenset()) is None
