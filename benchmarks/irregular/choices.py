"""Tree ensembles and mixtures of experts: data-dependent selection of work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from benchmarks.irregular.case import Case, Feeds, f32

EXPERTS, WIDTH, HIDDEN = 8, 64, 128


def _forest(trees: int, leaves: int) -> Case:
    """Trees grown leaf by leaf in random order; a tenth of the features is missing."""
    random = np.random.default_rng(0)
    inner = leaves - 1
    columns: dict[str, list[object]] = {key: [] for key in ("true", "false", "modes")}
    for _ in range(trees):
        ends, true, false = [0], [0] * (2 * leaves - 1), [0] * (2 * leaves - 1)
        for split in range(inner):
            node = ends.pop(int(random.integers(len(ends))))
            true[node], false[node] = 2 * split + 1, 2 * split + 2
            ends += [true[node], false[node]]
        columns["true"] += true
        columns["false"] += false
        columns["modes"] += ["BRANCH_LEQ" if node else "LEAF" for node in true]
    size = 2 * leaves - 1
    ids = np.tile(np.arange(size), trees)
    ends_of = np.flatnonzero(np.array(columns["modes"]) == "LEAF")
    owners = np.repeat(np.arange(trees), size)
    lists: dict[str, Sequence[object]] = {
        "nodes_treeids": owners.tolist(),
        "nodes_nodeids": ids.tolist(),
        "nodes_featureids": random.integers(0, 50, len(ids)).tolist(),
        "nodes_truenodeids": columns["true"],
        "nodes_falsenodeids": columns["false"],
        "nodes_missing_value_tracks_true": random.integers(0, 2, len(ids)).tolist(),
        "nodes_values": [f"{v:.6f}" for v in random.random(len(ids))],
        "nodes_modes": [f'"{mode}"' for mode in columns["modes"]],
        "target_treeids": owners[ends_of].tolist(),
        "target_nodeids": ids[ends_of].tolist(),
        "target_ids": [0] * len(ends_of),
        "target_weights": [f"{v:.6f}" for v in random.random(len(ends_of))],
    }
    given = ", ".join(f"{key} = [{', '.join(map(str, of))}]" for key, of in lists.items())
    body = f"y = ai.onnx.ml.TreeEnsembleRegressor<n_targets = 1, {given}>(x)"

    def feeds(random: np.random.Generator, n: int) -> Feeds:
        x = f32(random, n, 50)
        x[random.random(x.shape) < 0.1] = np.nan
        return {"x": x}

    return Case(f"g (float[n, 50] x) => (float[n, 1] y) {{ {body} }}", feeds, 16)


def _experts() -> Case:
    """Top-2 mixture of experts for n rows, as exported by torch: rows gathered for each expert."""
    lines = ["l = MatMul(x, g) p = Softmax<axis = -1>(l) t, i = TopK(p, two)"]
    lines += ["s = Shape(x) y0 = ConstantOfShape(s)"]
    for e in range(EXPERTS):
        lines += [
            f"q{e} = Equal(i, e{e}) c{e} = NonZero(q{e}) k{e} = Transpose<perm = [1, 0]>(c{e})",
            f"r{e} = Gather<axis = 1>(k{e}, zero) x{e} = Gather<axis = 0>(x, r{e})",
            f"a{e} = MatMul(x{e}, u{e}) b{e} = Relu(a{e}) o{e} = MatMul(b{e}, d{e})",
            f"v{e} = GatherND(t, k{e}) w{e} = Unsqueeze(v{e}, last) z{e} = Mul(o{e}, w{e})",
            f"j{e} = Unsqueeze(r{e}, last)",
            f'y{e + 1} = ScatterND<reduction = "add">(y{e}, j{e}, z{e})',
        ]
    fixed = np.random.default_rng(1)
    known: Feeds = {"g": f32(fixed, WIDTH, EXPERTS), "two": np.array([2])}
    known |= {"zero": np.array(0), "last": np.array([-1])}
    for e in range(EXPERTS):
        known |= {f"e{e}": np.array(e), f"u{e}": f32(fixed, WIDTH, HIDDEN) - np.float32(0.5)}
        known |= {f"d{e}": f32(fixed, HIDDEN, WIDTH) - np.float32(0.5)}
    inputs = ", ".join(
        f"{'float' if value.dtype == np.float32 else 'int64'}"
        f"{list(value.shape) if value.ndim else ''} {name}"
        for name, value in known.items()
    )
    body = " ".join(lines)
    graph = f"g (float[n, {WIDTH}] x, {inputs}) => (float[n, {WIDTH}] y{EXPERTS}) {{ {body} }}"
    return Case(graph, lambda r, n: {"x": f32(r, n, WIDTH), **known}, 64, constants=(*known,))


def _fused_experts() -> Case:
    """The same as one operator of onnxruntime."""
    known: Feeds = {"u": f32(np.random.default_rng(1), EXPERTS, HIDDEN, WIDTH) - np.float32(0.5)}
    known["d"] = f32(np.random.default_rng(2), EXPERTS, WIDTH, HIDDEN) - np.float32(0.5)
    graph = (
        f"g (float[n, {WIDTH}] x, float[n, {EXPERTS}] l, float[{EXPERTS}, {HIDDEN}, {WIDTH}] u, "
        f"float[{EXPERTS}, {WIDTH}, {HIDDEN}] d) => (float[n, {WIDTH}] y) {{ y = "
        'com.microsoft.MoE<activation_type = "relu", k = 2, normalize_routing_weights = 1>'
        "(x, l, u, , d) }"
    )

    def feeds(random: np.random.Generator, n: int) -> Feeds:
        return {"x": f32(random, n, WIDTH), "l": f32(random, n, EXPERTS), **known}

    return Case(graph, feeds, 64, constants=(*known,))


CASES: Mapping[str, Case] = MappingProxyType(
    {
        "100 trees of 64 leaves": _forest(100, 64),
        "1000 trees of 31 leaves": _forest(1000, 31),
        "mixture of experts": _experts(),
        "MoE": _fused_experts(),
    }
)  # fmt: skip
