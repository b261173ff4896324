"""Rewrites module text without quantized types: jaxlib's bindings lack their dialect.

A quantized tensor becomes the real numbers that it represents.  Its definition is followed by a
custom call that rounds these to representable ones, so arithmetic is that of the specification:
dequantize, compute, quantize::

    %2 = stablehlo.add %0, %1 : tensor<4x!quant.uniform<i8:f32, 0.5:3>>

becomes::

    %whole.2 = stablehlo.add %0, %1 : tensor<4xf32>
    %2 = stablehlo.custom_call @modelcc.quantized(%whole.2)
         {quantization = "i8:f32, 0.5:3"} : (tensor<4xf32>) -> tensor<4xf32>
"""

from __future__ import annotations

import re

from modelcc.ir.errors import ModelError

QUANTIZED, BITS, STANDS_FOR = (f"modelcc.{n}" for n in ("quantized", "bits", "stands_for"))
"""Custom calls: rounding to a quantized type, its storage integers, and back from these."""

MARK = "!quant.uniform<"
_STORAGE = r"[iu]\d+(?:<-?\d+:-?\d+>)?"
_TYPE = re.compile(rf"!quant\.uniform<({_STORAGE}:(\w+)(?::\d+)?,\s*(?:\{{[^}}]*\}}|[^>]*))>")
_OPERATION = re.compile(r'(\s*)(%[\w.$-]+) = ("?)stablehlo\.(\w+)("?)(.*)')
_OPERAND = re.compile(r"%[\w.$#-]+")
_NAMED = {"uniform_quantize", "uniform_dequantize", "bitcast_convert"}


def without_quantized_types(text: str) -> str:
    """``text`` with real numbers and custom calls; :class:`ModelError` if arguments or results of a
    function, or of a region, are quantized."""
    if MARK not in text:
        return text
    return "\n".join(_line(line) if MARK in line else line for line in text.split("\n"))


def _line(line: str) -> str:
    found = _OPERATION.fullmatch(line)
    if found is None:
        hint = "dequantize it in the function, and quantize results of it outside"
        raise ModelError(f"a quantized type outside of an operation: {line.strip()}", (), hint)
    indent, result, _, name, _, rest = found.groups()
    operands, types = rest[: rest.rindex(" : ")], rest[rest.rindex(" : ") + 3 :]
    given, arrow, made = types.rpartition(" -> ")
    plain, quantization = _plain(made), _TYPE.search(made)
    source = _plain(given) if arrow else f"({plain})"
    if name not in _NAMED:
        whole = f"%whole.{result[1:]}" if quantization else result
        head = line[: len(indent)] + f"{whole} = " + line[found.start(3) : found.start(6)]
        first = f"{head}{operands} : {_plain(types)}"
        return first if quantization is None else "\n".join(
            (first, _call(indent, result, QUANTIZED, whole, f"({plain})", plain, quantization[1]))
        )  # fmt: skip
    (operand,) = _OPERAND.findall(operands)
    before = _TYPE.search(given)
    if name == "uniform_dequantize":
        return f"{indent}{result} = stablehlo.convert {operand} : {source} -> {plain}"
    if name == "uniform_quantize" and quantization:
        return _call(indent, result, QUANTIZED, operand, source, plain, quantization[1])
    kind, own = (STANDS_FOR, quantization) if quantization else (BITS, before)
    assert own is not None
    return _call(indent, result, kind, operand, source, plain, own[1])


def _plain(types: str) -> str:
    return _TYPE.sub(lambda found: found[2], types)


def _call(
    indent: str, result: str, target: str, operand: str, source: str, made: str, quantization: str
) -> str:
    return (
        f"{indent}{result} = stablehlo.custom_call @{target}({operand}) "
        f'{{quantization = "{quantization}"}} : {source} -> {made}'
    )
