"""``python -m conformance.stablehlo_cases FOLDER``: cases of the StableHLO repository, compiled.

FOLDER is a checkout of openxla/stablehlo.  Functions of ``stablehlo/tests/interpret`` and modules
of ``stablehlo/testdata`` compute their results and check them; those of ``dynamic`` take arguments,
and must agree with jax for a named size of 3.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import click
import numpy as np

import modelcc
from conformance.jax_primitives import difference
from conformance.stablehlo_emission import run_text
from modelcc.frontends.kit.errors import UnsupportedModel
from modelcc.frontends.stablehlo.convert import convert
from modelcc.frontends.stablehlo.inputs import module_inputs
from modelcc.frontends.stablehlo.module import HloModule, Operation, ValueType
from modelcc.frontends.stablehlo.reading import read_text
from modelcc.ir.types import I64, Array

CONSTANT = re.compile(
    r"check\.\w+_const (%[\w#]+),\s*(dense<[^:]*>)[^:]*?:\s*(tensor<[^{\n]*>)( \{.*\})?"
)
VALUES = re.compile(r"check\.expect_\w+ (%[\w#]+), (%[\w#]+)(?:, .*)? : (tensor<[^,]*>).*")
PROBE = re.compile(r"interpreter\.probe (%\w+), probe_id = .* : (.*)")
PROBED = re.compile(r"check\.expect_serialized_eq (%\w+), .* : (.*)")
NEARLY = re.compile(r"expect_(?:almost|close)|check\.(?:almost|expect_close)")
TOLERANCE = re.compile(r"tolerance = ([\d.]+)")
SIZE = 3
"""The value of named extents in cases with arguments."""


def cases(folder: Path) -> Iterator[tuple[str, str]]:
    """Name and text of each module with checks."""
    testdata = folder / "stablehlo" / "testdata"
    for path in sorted(testdata.rglob("*.mlir")):
        name = path.relative_to(testdata).with_suffix("").as_posix()
        for text in path.read_text().split("// -----"):
            if "@check." in text or path.parent.name == "dynamic":
                yield name, text
    for path in sorted((folder / "stablehlo" / "tests" / "interpret").glob("*.mlir")):
        for number, text in enumerate(path.read_text().split("// -----")):
            if "check." in text and text.count("func.func") == 1:
                yield f"interpret/{path.stem}/{number}", returning(text)


def returning(text: str) -> str:
    """A function that returns the checked values and their expected ones, in pairs."""
    pairs: list[tuple[str, str]] = []

    def constant(match: re.Match[str]) -> str:
        value, contents, type, _ = match.groups()
        pairs.extend([(value, type), (f"%wanted{len(pairs)}", type)])
        return f"{pairs[-1][0]} = stablehlo.constant {contents} : {type}"

    def values(match: re.Match[str]) -> str:
        one, other, type = match.groups()
        pairs.extend([(one, type), (other, type)])
        return ""

    def probed(match: re.Match[str]) -> str:
        value, type = match.groups()
        pairs.extend([(value, type), (value, type)])
        return ""

    marks = [m[0] for m in (NEARLY.search(text), TOLERANCE.search(text)) if m]
    text = PROBE.sub(r"stablehlo.optimization_barrier \1 : \2", text)
    text = PROBED.sub(probed, VALUES.sub(values, CONSTANT.sub(constant, text)))
    types = ", ".join(type for _, type in pairs)
    text = re.sub(r"func\.func (?:public )?@\w+\(\)", f"func.func @main() -> ({types})", text)
    names = ", ".join(name for name, _ in pairs)
    text = re.sub(r"(func\.)?return *$", f"func.return {names} : {types}", text, flags=re.M)
    return "".join(f"// {mark}\n" for mark in marks) + text


def checked(module: HloModule) -> HloModule:
    """``main`` returns the operands of its checks, which are removed."""
    main, results = module.main, list[int]()
    kept = list(main.body.operations)
    for op in main.body.operations:
        if str(op.attributes.get("call_target_name", "")).startswith("check."):
            results += op.operands[:2]
            kept.remove(op)
    if not results:
        return module
    body = replace(main.body, operations=tuple(kept), results=tuple(results))
    labels = ("",) * len(results)
    return replace(
        module, functions={**module.functions, "main": replace(main, body=body,
                                                               result_labels=labels)},
    )  # fmt: skip


def outcome(text: str) -> tuple[str, str]:
    """``ok``, ``folded``, ``unsupported``, ``wrong``, ``error`` or ``unreadable``, and why.

    Constants are passed at run time, so that compiled code is tested; ``folded`` is correct, but
    needs them at compile time.
    """
    try:
        module = checked(read_text(text))
    except modelcc.ModelError as error:
        return "unreadable", str(error)
    if module.main.body.arguments:
        return compared(text, module)
    try:
        kind, found = _computed(module)
    except UnsupportedModel as error:
        return "unsupported", "; ".join(sorted({f"{n.operator}: {n.reason}" for n in error.nodes}))
    except Exception as error:
        return "error", f"{type(error).__name__}: {error}"
    pairs = [(np.asarray(a), np.asarray(b)) for a, b in zip(found[::2], found[1::2], strict=True)]
    if NEARLY.search(text) and all(_near(a, b, text) for a, b in pairs):
        return kind, ""
    reason = next(filter(None, (difference(a, b) for a, b in pairs)), "")
    return ("wrong" if reason else kind), reason


def _computed(module: HloModule) -> tuple[str, list[Array]]:
    """``ok`` and the results of compiled code; ``folded`` if it needs the module's constants."""
    kind, (wide, given) = "ok", opened(module)
    try:
        graph = convert(wide, module_inputs(wide, {}))
    except modelcc.ModelError:
        kind, given = "folded", ()
        graph = convert(module, module_inputs(module, {}))
    net = modelcc.compile(graph, cache=None, threads=1)
    return kind, list(net.run(dict(zip(graph.inputs, map(_parts, given), strict=True))).values())


def opened(module: HloModule) -> tuple[HloModule, Sequence[Array]]:
    """The module with constants of ``main`` as arguments, except expected results, and their
    values."""
    main, given, kept = module.main, dict[int, tuple[ValueType, Array]](), list[Operation]()
    for op in main.body.operations:
        found = _contents(op, module)
        named = dict(zip(op.results, zip(op.types, found, strict=True), strict=True))
        whole = all(array is not None for array in found)
        if whole and named.keys().isdisjoint(main.body.results[1::2]):
            given |= {n: (type, a) for n, (type, a) in named.items() if a is not None}
        else:
            kept.append(op)
    types = tuple(type for type, _ in given.values())
    body = replace(main.body, arguments=tuple(given), types=types, operations=tuple(kept))
    wide = replace(main, body=body, labels=("",) * len(given))
    functions = {**module.functions, "main": wide}
    return replace(module, functions=functions), [array for _, array in given.values()]


def _contents(op: Operation, module: HloModule) -> list[Array | None]:
    """Results of an operation, if it is a constant or a call of a function of constants."""
    if op.name == "stablehlo.constant":
        value, (type,) = op.attributes["value"], op.types
        shape = tuple(extent or 0 for extent in type.shape)
        if type.dtype is None or isinstance(value, str) or 0 in shape:
            return [None]
        return [np.broadcast_to(np.asarray(value, type.dtype.numpy), shape)]
    callee = module.functions.get(str(op.attributes.get("callee")))
    if callee is None or op.operands:
        return [None] * len(op.results)
    found = dict[int, Array | None]()
    for inner in callee.body.operations:
        found |= dict(zip(inner.results, _contents(inner, module), strict=True))
    return [found.get(number) for number in callee.body.results]


def _near(found: Array, wanted: Array, text: str) -> bool:
    """Whether results are close enough for an approximate check, by its own tolerance or
    StableHLO's."""
    asked = TOLERANCE.search(text)
    tolerance = float(asked[1]) if asked else 1e-3
    same = found.shape == wanted.shape and found.dtype == wanted.dtype
    if not same or found.dtype.kind in "bc":
        return same and bool(np.allclose(found, wanted, 0, tolerance, equal_nan=True))
    a, b = found.astype(np.float64), wanted.astype(np.float64)
    return bool(np.allclose(a, b, 0, tolerance * 1.001, equal_nan=True))


def compared(text: str, module: HloModule) -> tuple[str, str]:
    """The same against jax: leading i64 scalar arguments are named sizes."""
    generator, args = np.random.default_rng(0), list[Array]()
    sizes = 0
    for given in module.main.body.types:
        shape = [SIZE if extent is None else extent for extent in given.shape]
        if not shape and given.dtype == I64 and sizes == len(args):
            sizes += 1
            args.append(np.array(SIZE))
        elif given.dtype is None:
            return "unsupported", f"an argument of {given}"
        elif given.dtype.kind == "complex":
            parts = generator.normal(size=(2, *shape))
            args.append((parts[0] + 1j * parts[1]).astype(given.dtype.numpy))
        elif given.dtype.is_float:
            args.append(generator.normal(size=shape).astype(given.dtype.numpy))
        else:
            args.append(generator.integers(0, 2, shape).astype(given.dtype.numpy))
    try:
        wanted = run_text(_with_sizes(text, sizes), args[sizes:])
    except Exception as error:
        return "unreadable", f"jax: {error}"
    try:
        graph = convert(module, module_inputs(module, {}))
        net = modelcc.compile(graph, cache=None, threads=1)
        found = net.run(dict(zip(graph.inputs, map(_parts, args), strict=True)))
    except UnsupportedModel as error:
        return "unsupported", "; ".join(sorted({f"{n.operator}: {n.reason}" for n in error.nodes}))
    except Exception as error:
        return "error", f"{type(error).__name__}: {error}"
    pairs = zip(found.values(), wanted, strict=True)
    reason = next(filter(None, (difference(np.asarray(a), _parts(b)) for a, b in pairs)), "")
    return ("wrong" if reason else "ok"), reason


def _parts(array: Array) -> Array:
    """Complex numbers as pairs."""
    if array.dtype.kind != "c":
        return array
    return np.stack([np.real(array), np.imag(array)], -1)


def _with_sizes(text: str, count: int) -> str:
    """The module with constants in place of its first arguments."""
    head = re.compile(r"(func\.func public @main\()(.*?)(\) -> .*\{\n)")

    def constant(match: re.Match[str]) -> str:
        given = re.split(r", (?=%)", match[2])
        lines = (f"{a.partition(' {')[0].replace(':', f' = stablehlo.constant dense<{SIZE}> :')}\n"
                 for a in given[:count])  # fmt: skip
        return f"{match[1]}{', '.join(given[count:])}{match[3]}{''.join(lines)}"

    return head.sub(constant, text, count=1)


def run(chosen: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str, str]]:
    """Name and outcome of each case."""
    for name, text in chosen:
        yield name, *outcome(text)


@click.command()
@click.argument("folder", type=click.Path(exists=True, path_type=Path))
@click.option("--only", default="", help="Regular expression that names must contain.")
@click.option("--every", default=1, show_default=True, help="Of so many cases one is run.")
def main(folder: Path, only: str, every: int) -> None:
    """Compile and run the cases in FOLDER."""
    counts: Counter[str] = Counter()
    for name, kind, reason in run([c for c in cases(folder) if re.search(only, c[0])][::every]):
        counts[kind] += 1
        if kind not in ("ok", "folded"):
            click.echo(f"{name}: {kind}: {reason[:300]}")
    click.echo(dict(counts))


if __name__ == "__main__":
    main()
