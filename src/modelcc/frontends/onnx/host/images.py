"""Handler of ImageDecoder: a step of the runtime."""

from __future__ import annotations

from modelcc.frontends.onnx.call import Call, table
from modelcc.frontends.onnx.host.steps import host_step
from modelcc.ir.types import U8, TensorType


def decode_image(call: Call) -> tuple[str, ...]:
    """How large the image is is seen when the model is called."""
    if call.rank() != 1 or call.dtype() != U8:
        call.fail(f"an encoded image is u8[bytes], not {call.type()}")
    formats = ("RGB", "BGR", "Grayscale")
    chosen = call.option("pixel_format", formats, "RGB")
    place = "/".join(call.source)
    height, width = (call.emitter.fresh_dim(f"{place}.{what}") for what in ("height", "width"))
    shape = (height, width, 1 if chosen == "Grayscale" else 3)
    return host_step(call, "decode_image", (TensorType(shape, U8),), {"pixel_format": chosen})


IMAGES = table(ImageDecoder=decode_image)
