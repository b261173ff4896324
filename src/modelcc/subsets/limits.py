"""Constraints common to several tables."""

from __future__ import annotations

from collections.abc import Sequence

from modelcc.frontends.tflite.module import TfliteTensor
from modelcc.subsets.subset import Limitation
from modelcc.subsets.view import OperatorView, axes_of, shape_of

QUANTIZE = "quantize the model to int8 first: modelcc quantize"
CONSTANT = "make it a constant of the model"
PINNED = "an open batch is 1 with --rewrite; other extents are fixed when a model is exported"


def data_types(allowed: Sequence[str], change: str = "") -> Limitation:
    """The dtype of the data tensor."""

    def broken(view: OperatorView) -> str:
        tensor = view.data or view.outputs[0]
        if tensor.type in allowed:
            return ""
        return f"{tensor.name!r} is {tensor.type}; taken are {', '.join(allowed)}"

    return Limitation(broken, change or QUANTIZE)


def all_types(allowed: Sequence[str], places: Sequence[int] | None = None) -> Limitation:
    """Dtypes of all operands and results, or of operands at ``places`` and results."""

    def broken(view: OperatorView) -> str:
        inputs = view.inputs if places is None else [view.input(p) for p in places]
        found = (t for t in (*inputs, *view.outputs) if t is not None and t.type not in allowed)
        return "; ".join(f"{t.name!r} is {t.type}" for t in found)

    return Limitation(broken, QUANTIZE)


def constant_operands(*places: int) -> Limitation:
    """Operands that must be constant if present."""

    def broken(view: OperatorView) -> str:
        found = (t for p in places if (t := view.input(p)) is not None and t.data is None)
        return "; ".join(f"operand {t.name!r} is no constant" for t in found)

    return Limitation(broken, CONSTANT)


def known_extents(first: bool = False) -> Limitation:
    """Static extents; the first axis may be dynamic unless ``first``."""

    def broken(view: OperatorView) -> str:
        return "; ".join(filter(None, (open_extents(t, first) for t in view.tensors)))

    return Limitation(broken, PINNED)


def open_extents(tensor: TfliteTensor, first: bool) -> str:
    """A message about dynamic extents of a tensor."""
    if tensor.shape is None:
        return f"{tensor.name!r} has no shape"
    found = [n for n, size in enumerate(tensor.shape) if size == -1 and (n > 0 or first)]
    return f"axis {found[0]} of {tensor.name!r} is open" if found else ""


def no_activation() -> Limitation:
    """No fused activation."""

    def broken(view: OperatorView) -> str:
        found = view.text("fused_activation_function")
        return "" if found == "NONE" else f"{found} is fused"

    return Limitation(broken, "have the activation as an operator of its own")


def strides_within(least: int, most: int) -> Limitation:
    """Strides of windows along both axes."""

    def broken(view: OperatorView) -> str:
        found = strides(view)
        if all(least <= stride <= most for stride in found):
            return ""
        return f"strides {found[0]}x{found[1]}; taken are {least} to {most}"

    return Limitation(broken, "use smaller strides")


def not_along_batch(place: int = 1, words: str = "it works along the batch axis") -> Limitation:
    """No axis in a constant operand is the first of four."""

    def broken(view: OperatorView) -> str:
        rank = len(shape_of(view.data))
        return words if rank == 4 and 0 in axes_of(view.constant(place), rank) else ""

    return Limitation(broken, "keep the batch axis")


def strides(view: OperatorView) -> tuple[int, int]:
    """Strides along rows and columns."""
    return view.number("stride_h", 1), view.number("stride_w", 1)


def dilations(view: OperatorView) -> tuple[int, int]:
    """Dilations along rows and columns."""
    return view.number("dilation_h_factor", 1), view.number("dilation_w_factor", 1)


def kernel(view: OperatorView) -> tuple[int, int]:
    """Extents of a window: of the filter, or of a pooling operator's options."""
    if "POOL" in view.name:
        return view.number("filter_height", 1), view.number("filter_width", 1)
    sizes = shape_of(view.input(1))
    return (sizes[1], sizes[2]) if len(sizes) == 4 else (1, 1)


def padded(view: OperatorView) -> tuple[tuple[int, int], tuple[int, int]]:
    """SAME padding before and after rows, and columns; zeros for VALID."""
    data = shape_of(view.data)
    if view.text("padding") != "SAME" or len(data) != 4:
        return (0, 0), (0, 0)
    pads: list[tuple[int, int]] = []
    for size, k, s, d in zip(data[1:3], kernel(view), strides(view), dilations(view), strict=True):
        whole = max(0, (-(-size // s) - 1) * s + (k - 1) * d + 1 - size)
        pads.append((whole // 2, whole - whole // 2))
    return pads[0], pads[1]
