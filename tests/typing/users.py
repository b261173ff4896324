"""How people use modelcc, for type checkers."""

import copy
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import modelcc


def shape_of(net: modelcc.Model, x: NDArray[np.float32]) -> tuple[int, ...]:
    return net(x).shape


def first(net: modelcc.Model, x: NDArray[np.float32]) -> NDArray[np.float32]:
    return net(x)


def both(net: modelcc.Model, x: NDArray[np.float32]) -> float:
    total, product = net(x, x)
    return float((total + product).mean())


def maybe_several(net: modelcc.Model, x: NDArray[np.float32]) -> int:
    result = net(x=x)
    if isinstance(result, tuple):
        return -1
    return int(result.argmax())


def main() -> None:
    net = modelcc.compile(
        "model.onnx", threads=2, dims={"batch": (1, 8)}, winograd=False, limit=("FuseKernels", 3)
    )
    again: modelcc.Model = modelcc.compile(
        Path("model.onnx"), options=modelcc.Options(optimize=3), cache=None
    )
    x = np.zeros((1, 8), np.float32)
    y = np.empty((1, 3), np.float32)
    net(x, out=y)
    outputs = net.run({"x": x})
    print(outputs["y"].shape, shape_of(again, x), copy.copy(net))
    checked = modelcc.verify("model.onnx", {"x": x}, tolerance=1e-3, sizes={"batch": 2})
    print(checked.agrees, [d.relative for d in checked.reference])
    print(modelcc.import_model("model.onnx", keep=["h"]).outputs)

    def told(what: str, done: int, total: int) -> None:
        print(what, done, total)

    try:
        modelcc.compile(b"", progress=told)
    except modelcc.Error as error:
        print(error)
    net.save("net.mcc")
    print(modelcc.load("net.mcc").report().arena)
