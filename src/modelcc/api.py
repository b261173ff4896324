"""The Python API: compile a model, run it, look at it.

The compiler is imported when there is something to compile: a model that is loaded, or found in
the cache, needs the runtime alone.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from modelcc.artifact.file import Artifact, read_artifact, write_artifact
from modelcc.artifact.manifest import DimSpec, TensorSpec
from modelcc.compile_cache import HOST_TARGETS, find_compiled
from modelcc.environment import Environment, read_environment
from modelcc.ir.index import Range
from modelcc.ir.op import ModelError
from modelcc.ir.types import Array, TensorType
from modelcc.options import Dims, Options, fixed_dims
from modelcc.runtime.pool import available_cores
from modelcc.runtime.session import Outs, Session
from modelcc.runtime.values import session_of

if TYPE_CHECKING:
    from modelcc.driver import Compiled, ModelSource
    from modelcc.ir.graph import Graph
    from modelcc.report import Report, StageTime
    from modelcc.targets.base import Progress
    from modelcc.verification import Verification


class Model:
    """A compiled model, ready to run; safe to call from several threads at once."""

    def __init__(
        self,
        artifact: Artifact,
        session: Session,
        threads: int,
        times: Sequence[StageTime] = (),
    ) -> None:
        """Made by :func:`compile` and :func:`load`."""
        self._artifact = artifact
        self._session = session
        self._times = tuple(times)
        self.threads = threads

    @property
    def name(self) -> str:
        """The model's own name."""
        return self._artifact.manifest.name

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Name, element type and shape of each input; extents may be named dimensions."""
        return self._artifact.manifest.inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """Name, element type and shape of each output."""
        return self._artifact.manifest.outputs

    @property
    def dims(self) -> tuple[DimSpec, ...]:
        """Named dimensions, with the least and greatest size of each."""
        return self._artifact.manifest.dims

    def __call__(
        self, *arguments: object, out: Outs | None = None, **named: object
    ) -> Array | tuple[Array, ...]:
        """The output, or a tuple of the outputs, for inputs in order, by keyword, or in a dict.

        Inputs are NumPy arrays or anything with ``__dlpack__`` and are not copied if contiguous.
        ``out`` gives arrays to write into.  :class:`InputError` says what does not fit.
        """
        return self._session(*arguments, out=out, **named)

    def run(
        self, feeds: Mapping[str, object], out: Mapping[str, Array] | None = None
    ) -> dict[str, Array]:
        """Outputs by name for inputs by name; otherwise as a call."""
        return self._session.run(feeds, out)

    def save(self, path: str | Path) -> None:
        """Write the artifact, ``model.mcc``; ``OSError`` if the path cannot be written."""
        write_artifact(path, self._artifact)

    def report(self, profile: Mapping[str, object] | bool = False) -> Report:
        """Kernels, memory plan and, just after compiling, the compiler's times.

        ``profile`` (inputs, or True for random ones) also measures each kernel.
        """
        report: Report | None = _driver().report_in(self._artifact)
        if report is None:
            raise ModelError("the artifact carries no report", (self.name,), "compile it again")
        if profile is not False:
            feeds = self.random_inputs(report.sizes) if profile is True else profile
            seconds = np.median(self._session.profile(feeds, len(report.kernels)), axis=0)
            report = report.with_profile([float(s) for s in seconds])
        return report.with_stages(self._times)

    def random_inputs(self, sizes: Mapping[str, int] | None = None, seed: int = 0) -> (
        dict[str, Array]
    ):  # fmt: skip
        """Random arrays for all inputs; ``sizes`` are those of named dimensions."""
        types = {spec.name: TensorType(spec.shape, spec.dtype) for spec in self.inputs}
        bounds = {dim.name: Range(dim.low, dim.high) for dim in self.dims}
        shapes = [type.shape for type in types.values()]
        feeds: Any = import_module("modelcc.feeds")
        return feeds.random_feeds(types, feeds.nominal_sizes(bounds, sizes or {}, shapes), seed)


def compile(
    model: ModelSource,
    target: str = "native",
    *,
    threads: int | None = None,
    dims: Dims | None = None,
    cpu: str = "",
    optimize: int = 2,
    cache: str | Path | None = "",
    progress: Progress | None = None,
) -> Model:
    """Compile an ONNX model: a path, the bytes of a file, an ``onnx.ModelProto``, or a graph.

    ``threads``: how many to run on (default: ``MODELCC_NUM_THREADS``, else one per core).
    ``dims`` fixes named dimensions (``{"batch": 8}``) or bounds them (``{"batch": (1, 512)}``).
    ``cpu`` names a processor to compile for, ``optimize`` is 0 to 3.  ``cache`` is a folder, None
    for no cache.  ``progress`` is told about long work.  :class:`ModelError` says what is wrong
    with the model or an argument.
    """
    environment = read_environment(os.environ)
    options = Options(
        target=target,
        cpu=cpu,
        threads=default_threads(threads, environment),
        optimize=optimize,
        dims=fixed_dims(dims),
    )
    folder = environment.cache if cache == "" else (None if cache is None else Path(cache))
    return compiled_model(model, options, folder, progress)


def compiled_model(
    model: ModelSource, options: Options, cache: Path | None, progress: Progress | None = None
) -> Model:
    """The model of :func:`compile`, from the folder ``cache`` if it is there."""
    found = None if cache is None else find_compiled(model, options, cache)
    if found is not None:
        artifact = found[0]
        return Model(artifact, session_of(artifact, options.threads), options.threads)
    workplace = _driver().Workplace(cache, available_cores(), progress)
    compiled: Compiled = _driver().compile_model(model, options, workplace)
    session = compiled.target.load(compiled.artifact, options.threads)
    return Model(compiled.artifact, session, options.threads, compiled.times)


def load(path: str | Path, *, threads: int | None = None, target: str = "native") -> Model:
    """A compiled model from its file; :class:`ArtifactError` if it is none or damaged."""
    count = default_threads(threads, read_environment(os.environ))
    artifact = read_artifact(path)
    if target in HOST_TARGETS:
        return Model(artifact, session_of(artifact, count), count)
    loader = _driver().target_of(Options(target=target, threads=count))
    return Model(artifact, loader.load(artifact, count), count)


def import_model(model: ModelSource, *, dims: Dims | None = None) -> Graph:
    """The graph of a model, before any pass."""
    return _driver().import_model(model, Options(dims=fixed_dims(dims)))


def verify(
    model: ModelSource,
    feeds: Mapping[str, Array] | None = None,
    *,
    dims: Dims | None = None,
    threads: int | None = None,
    seed: int = 0,
) -> Verification:
    """The compiled model against the reference interpreter and, if installed, onnxruntime.

    ``feeds`` are the inputs to use (default: random ones from ``seed``).
    """
    environment = read_environment(os.environ)
    count = default_threads(threads, environment)
    options = Options(threads=count, dims=fixed_dims(dims))
    workplace = _driver().Workplace(environment.cache, available_cores())
    verification: Any = import_module("modelcc.verification")
    request = verification.Request(model, options, workplace, feeds or {}, {}, seed)
    return verification.verify_model(request)


def _driver() -> Any:
    """The compiler, imported when it is wanted."""
    return import_module("modelcc.driver")


def default_threads(asked: int | None, environment: Environment) -> int:
    """As asked, else as the environment says, else one per core."""
    if asked is not None:
        return asked
    return environment.threads if environment.threads is not None else available_cores()


__all__ = ["Model", "compile", "import_model", "load", "verify"]
