"""onnxruntime as a reference; import it only if the package is installed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import onnxruntime
from onnx import ModelProto

from modelcc.ir.errors import ModelError
from modelcc.ir.types import Array


class OnnxruntimeModel:
    """A model in onnxruntime, on the CPU."""

    def __init__(
        self, model: str | Path | bytes | ModelProto, threads: int, exact: bool = True
    ) -> None:
        """:class:`ModelError` if onnxruntime cannot load the model.

        Without ``exact`` it may use the fastest kernels: on processors without VNNI sums of u8
        times i8 may saturate.
        """
        engine: Any = onnxruntime  # its stubs are incomplete
        options = engine.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3
        if exact:
            options.add_session_config_entry("session.x64quantprecision", "1")
        source = model.SerializeToString() if isinstance(model, ModelProto) else model
        source = _given(Path(source)) if isinstance(source, str | Path) else source
        providers = ["CPUExecutionProvider"]
        try:
            self._session: Any = engine.InferenceSession(source, options, providers)
        except Exception as error:  # its exceptions have no common base but this
            raise ModelError(f"onnxruntime cannot load the model: {error}") from error
        self.outputs = tuple(str(output.name) for output in self._session.get_outputs())

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Outputs by name; :class:`ModelError` if onnxruntime fails."""
        try:
            results = self._session.run(None, dict(feeds))
        except Exception as error:  # its exceptions have no common base but this
            raise ModelError(f"onnxruntime cannot run the model: {error}") from error
        return dict(zip(self.outputs, cast("list[Array]", results), strict=True))


def _given(path: Path) -> str | bytes:
    """A path, or the contents of the file: onnxruntime requires Unicode names."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return path.read_bytes()
    return str(path)


def bench_engine(
    model: str, options: Mapping[str, int]
) -> Callable[[Mapping[str, Array]], dict[str, Array]]:
    """For :mod:`modelcc.bench.worker`."""
    return OnnxruntimeModel(model, options["threads"], exact=False).run
