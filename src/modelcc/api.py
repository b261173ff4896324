"""The Python API: compile, run and inspect models.

The compiler is imported on demand: a model that is loaded, or found in the cache, needs only the
runtime.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, overload

from modelcc import checks
from modelcc.artifact.file import Artifact, read_artifact
from modelcc.cache.compile_cache import find_compiled
from modelcc.cache.measurements import with_measurements
from modelcc.compiling_process import ProcessError, compiled_apart
from modelcc.environment import Environment, read_environment
from modelcc.frontends.choice import frontend_of, is_module_text
from modelcc.heap import release_heap
from modelcc.ir.errors import ModelError
from modelcc.ir.types import Array
from modelcc.model import Model, opened, session_for
from modelcc.options import Dims, Limit, Options, library_paths
from modelcc.runtime.errors import LoadError
from modelcc.runtime.linking.libraries import with_paths
from modelcc.runtime.pool import available_cores
from modelcc.runtime.session import Session

if TYPE_CHECKING:
    from modelcc.driver import Compiled, ModelSource
    from modelcc.interpreted import BytecodeModel
    from modelcc.ir.graph import Graph
    from modelcc.quantization.quantising import QuantizedModel
    from modelcc.quantization.samples import Calibration
    from modelcc.quantization.settings import QuantizationSettings
    from modelcc.targets.base import Progress
    from modelcc.verification.verification import Verification

_LOGGER = logging.getLogger(__name__)
BYTECODE_SUFFIX = ".mcb"


def compile(
    model: ModelSource,
    args: str | Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    target: str | None = None,
    options: Options | None = None,
    threads: int | None = None,
    dims: Dims | None = None,
    cpu: str | None = None,
    optimize: int | None = None,
    accuracy: str | None = None,
    precision: str | None = None,
    winograd: bool | None = None,
    strassen: bool | None = None,
    schedule: str | None = None,
    tuned: bool | None = None,
    libraries: Mapping[str, str] | None = None,
    kernels: str | None = None,
    skip: Sequence[str] | None = None,
    limit: Limit | tuple[str, int] | None = None,
    keep: Sequence[str] | None = None,
    unchecked: bool | None = None,
    ram: int | None = None,
    machine: Mapping[str, float] | None = None,
    measured: bool = True,
    cache: str | Path | None = "",
    separate: bool | None = False,
    progress: Progress | None = None,
) -> Model:
    """Compile a model: a path (``.onnx``, ``.pt2``, ``.mlir``), the bytes of a file, StableHLO's
    text, an ``onnx.ModelProto``, a program of ``torch.export`` or ``jax.export``, or a graph.

    A ``torch.nn.Module`` is exported first by a call with the example inputs ``args`` and
    ``kwargs``; ``dynamic_shapes`` is as for ``torch.export.export``, whose ``Dim`` names
    dimensions.  For any other model the name of a target may replace ``args``.  ``dims`` fixes
    named dimensions (``{"batch": 8}``) or bounds them (``{"batch": (1, 512)}``); ``threads`` is the
    number of threads (default: ``MODELCC_NUM_THREADS``, else one per core).
    ``cpu`` names the processor to compile for (default: ``MODELCC_CPU``, else this one),
    ``optimize`` is 0 to 3, ``precision="bf16"`` rounds the operands of f32 products.  These and the
    others are fields of :class:`Options`, whose defaults ``options`` overrides.  ``cache`` is a
    folder (default: ``MODELCC_CACHE_DIR``, else one in the home directory), None for no cache.
    Measurements that ``modelcc machine --measure`` stores there are used unless ``measured`` is
    False.  With ``separate`` another process compiles (None: if possible).  ``progress`` receives a
    text, the number of finished parts, and their total.  Raises :class:`ModelError` for invalid
    arguments; calls of a model for another machine, which can be saved, raise :class:`LoadError`.
    """
    environment = read_environment(os.environ)
    args, target = (None, args) if isinstance(args, str) and target is None else (args, target)
    asked = asked_options(
        environment, options, target=target, threads=threads, dims=dims, cpu=cpu,
        optimize=optimize, accuracy=accuracy, precision=precision, winograd=winograd,
        strassen=strassen, schedule=schedule, tuned=tuned, skip=skip, limit=limit, keep=keep,
        unchecked=unchecked, machine=machine, libraries=libraries, ram=ram, kernels=kernels,
    )  # fmt: skip
    checks.function("progress", progress, _PROGRESS)
    folder, apart = _folder(cache, environment), checks.optional_flag("separate", separate)
    here, called = _here(asked, folder, measured), _called(model, args, kwargs, dynamic_shapes)
    return compiled_model(called, here, folder, default_jobs(environment), progress, apart)


def _called(model: Any, args: Any, kwargs: Any, dynamic_shapes: Any) -> ModelSource:
    """``model`` exported by a call with the example inputs; unchanged without any."""
    source = _source(model)
    if args is None and kwargs is None and dynamic_shapes is None:
        return source
    return frontend_of(source).called(source, args, kwargs, dynamic_shapes)


def compiled_model(
    model: ModelSource,
    options: Options,
    cache: Path | None,
    jobs: int,
    progress: Progress | None = None,
    separate: bool | None = False,
) -> Model:
    """The model of :func:`compile`: from the folder ``cache`` if it is there, else compiled by
    ``jobs`` processes, without this one if ``separate`` (None: if possible)."""
    found = None if cache is None or options.tuned else find_compiled(model, options, cache)
    if found is not None:
        return _compiled(found, options, _session_for)
    if separate is not False:
        try:
            found, times = compiled_apart(model, options, cache, jobs, progress)
            return _compiled(found, options, _session_for).with_times(times)
        except ProcessError as error:
            if separate:
                raise
            _LOGGER.warning("%s: this process compiles", error.message)
    config = _driver().BuildConfig(cache, jobs, progress)
    compiled: Compiled = _driver().compile_model(model, options, config)
    release_heap()
    made = _compiled(compiled.artifact, options, lambda a, o: compiled.target.load(a, o.threads))
    return made.with_times(compiled.times)


def _compiled(
    artifact: Artifact, options: Options, load: Callable[[Artifact, Options], Session]
) -> Model:
    """The compiled model, with its session, or with the reason why this machine cannot run it."""
    try:
        session: Session | LoadError = load(artifact, options)
    except LoadError as error:
        session = error
    return Model(artifact, session, options.threads, options.target)


def _session_for(artifact: Artifact, options: Options) -> Session:
    return session_for(artifact, options.target, options.threads)


@overload
def load(
    path: str | Path,
    *,
    threads: int | None = None,
    target: str = "native",
    sha256: str | None = None,
    libraries: Mapping[str, str] | None = None,
) -> Model: ...


@overload
def load(path: str | Path, *, interpreter: str | Path) -> BytecodeModel: ...


def load(
    path: str | Path,
    *,
    threads: int | None = None,
    target: str = "native",
    sha256: str | None = None,
    libraries: Mapping[str, str] | None = None,
    interpreter: str | Path | None = None,
) -> Model | BytecodeModel:
    """A compiled model from its file; :class:`ArtifactError` if it is invalid or damaged.

    Bytecode for microcontrollers (``.mcb``) is run by its ``interpreter``, the folder that
    ``--emit interpreter`` wrote, built by this machine's C compiler; other arguments are ignored
    then.

    **The file is machine code, which runs in this process with all its rights: load none that you
    would not run as a program.**  Checksums detect damage, not malice; ``sha256``, the digest of
    the file as ``sha256sum`` prints it, rejects any other file.  ``target`` is the one it was
    compiled for; ``libraries`` are paths, by names, of libraries that it calls and that are in
    other locations here.  Raises :class:`LoadError` if this machine cannot run it.
    """
    asked = asked_options(read_environment(os.environ), None, target=target, threads=threads)
    place = checks.file_path("path", path)
    if place.suffix == BYTECODE_SUFFIX or interpreter is not None:
        folder = None if interpreter is None else checks.file_path("interpreter", interpreter)
        found: BytecodeModel = import_module("modelcc.interpreted").load_bytecode(place, folder)
        return found
    pin = None if sha256 is None else checks.text("sha256", sha256, "as sha256sum prints it")
    paths = dict(library_paths("libraries", {} if libraries is None else libraries))
    artifact = read_artifact(place, sha256=pin)
    artifact = replace(artifact, manifest=with_paths(artifact.manifest, paths))
    return opened(artifact, asked.target, asked.threads)


def import_model(
    model: ModelSource,
    *,
    options: Options | None = None,
    dims: Dims | None = None,
    keep: Sequence[str] | None = None,
) -> Graph:
    """The graph of a model, before any pass.  Arguments are as for :func:`compile`."""
    environment = read_environment(os.environ)
    asked = asked_options(environment, options, dims=dims, keep=keep)
    return _driver().import_model(_source(model), asked)


def export_onnx(
    model: ModelSource,
    path: str | Path,
    *,
    options: Options | None = None,
    dims: Dims | None = None,
    keep: Sequence[str] | None = None,
) -> tuple[Path, ...]:
    """Write a model of any kind, or a graph, as an ONNX file; returns the files written.

    Constants of more than 2 GB go into a separate file, ``path`` with ``.data`` appended.  Raises
    :class:`ModelError` for what ONNX cannot express, with its location in the model.  Arguments are
    as for :func:`compile`.
    """
    source, target = _source(model), checks.file_path("path", path)
    if isinstance(source, Path) and target.exists() and target.samefile(source):
        hint = "give the copy another name"
        raise ModelError("it would be written over the model that is read", (str(target),), hint)
    graph = import_model(source, options=options, dims=dims, keep=keep)
    return _emission().write_simplified(graph, target)


def quantize(
    model: ModelSource,
    calibration: Calibration | None = None,
    *,
    settings: QuantizationSettings | None = None,
    options: Options | None = None,
    threads: int | None = None,
    dims: Dims | None = None,
    cache: str | Path | None = "",
    progress: Progress | None = None,
    **asked: Any,
) -> QuantizedModel:
    """The model quantised to low-bit integers, by ranges of its values over ``calibration``: a
    ``.npz`` file or a folder of NumPy's files with samples along the first axis, such arrays by
    input, or an iterable of feeds.

    ``asked`` are fields of :class:`~modelcc.quantization.settings.QuantizationSettings`, overriding
    those of ``settings``: ``method="entropy"``, ``max_error=0.01``.  With ``activations="none"``
    only weights are quantised, and calibration may be omitted.  The rest is as for :func:`compile`.
    The result has a ``graph`` for :func:`compile`, ``save`` and a ``report``; raises
    :class:`ModelError` for invalid arguments, or for an unattainable budget, with the attainable
    one.
    """
    environment = read_environment(os.environ)
    compiling = asked_options(environment, options, threads=threads, dims=dims)
    home = import_module("modelcc.quantization.settings").QuantizationSettings
    wrong = next((name for name in asked if name not in home.__dataclass_fields__), None)
    if wrong is not None:
        known = ", ".join(home.__dataclass_fields__)
        raise ModelError(f"quantize has no argument {wrong!r}", (), f"settings are {known}")
    wanted = home(**asked) if settings is None else replace(settings, **asked)
    graph = import_model(model, options=compiling)
    config = _build_config(_folder(cache, environment), environment, progress)
    engine = import_module("modelcc.quantization.running").Engine(compiling, config)
    quantised = import_module("modelcc.quantization.quantising").quantised_model
    return quantised(graph, calibration, wanted, engine)


def verify(
    model: ModelSource,
    feeds: Mapping[str, Array] | None = None,
    target: str | None = None,
    *,
    options: Options | None = None,
    threads: int | None = None,
    dims: Dims | None = None,
    cpu: str | None = None,
    optimize: int | None = None,
    accuracy: str | None = None,
    precision: str | None = None,
    winograd: bool | None = None,
    strassen: bool | None = None,
    schedule: str | None = None,
    tuned: bool | None = None,
    libraries: Mapping[str, str] | None = None,
    kernels: str | None = None,
    skip: Sequence[str] | None = None,
    limit: Limit | tuple[str, int] | None = None,
    unchecked: bool | None = None,
    ram: int | None = None,
    machine: Mapping[str, float] | None = None,
    sizes: Mapping[str, int] | None = None,
    seed: int = 0,
    tolerance: float | None = None,
    layers: bool = False,
    bisect: bool = False,
    measured: bool = True,
    cache: str | Path | None = "",
    progress: Progress | None = None,
) -> Verification:
    """Compares the compiled model with the reference interpreter and, if installed, onnxruntime.

    ``feeds`` are given inputs; others are random from ``seed``, with ``sizes`` for their named
    dimensions.  ``tolerance`` is the accepted error, as a fraction of the largest value.
    ``layers`` also finds the first wrong node, ``bisect`` the faulty stage of the compiler.  The
    rest is as for :func:`compile`.
    """
    environment = read_environment(os.environ)
    asked = asked_options(
        environment, options, target=target, threads=threads, dims=dims, cpu=cpu,
        optimize=optimize, accuracy=accuracy, precision=precision, winograd=winograd,
        strassen=strassen, schedule=schedule, tuned=tuned, skip=skip, limit=limit,
        unchecked=unchecked, machine=machine, libraries=libraries, ram=ram,
        kernels=kernels,
    )  # fmt: skip
    folder = _folder(cache, environment)
    request = _verification().Request(
        _source(model),
        _here(asked, folder, measured),
        _build_config(folder, environment, progress),
        {} if feeds is None else checks.mapping("feeds", feeds, _FEEDS),
        {} if sizes is None else checks.sizes("sizes", sizes),
        checks.whole_number("seed", seed),
        None if tolerance is None else checks.number("tolerance", tolerance),
    )
    named, staged = checks.flag("layers", layers), checks.flag("bisect", bisect)
    return _verification().verified(request, layers=named, bisect=staged)


def _here(asked: Options, folder: Path | None, measured: bool) -> Options:
    return with_measurements(asked, folder if checks.flag("measured", measured) else None)


def _emission() -> Any:
    return import_module("modelcc.emit.emission")


def _verification() -> Any:
    return import_module("modelcc.verification.verification")


def _build_config(folder: Path | None, environment: Environment, progress: Progress | None) -> Any:
    checks.function("progress", progress, _PROGRESS)
    return _driver().BuildConfig(folder, default_jobs(environment), progress)


_PROGRESS = "give a function of (what: str, done: int, total: int)"
_FEEDS = "for example {'x': numpy.zeros((1, 3), 'float32')}"


def options_of(**given: Any) -> Options:
    """The options of :func:`compile` for these arguments and the environment."""
    return asked_options(read_environment(os.environ), None, **given)


def asked_options(environment: Environment, base: Options | None, **given: Any) -> Options:
    """``base`` with the ``given`` fields (not None) replaced.

    Without a base: the defaults, with the environment's number of threads, else one per core.
    If no processor is named, the environment's is used.
    """
    if base is None:
        base = Options(threads=default_threads(None, environment))
    checks.instance("options", base, Options, "for example options=modelcc.Options(optimize=3)")
    asked = replace(base, **{name: value for name, value in given.items() if value is not None})
    return asked if asked.cpu else replace(asked, cpu=environment.cpu)


def _source(model: Any) -> ModelSource:
    """A model in the form that the cache accepts; the frontend rejects invalid ones."""
    if isinstance(model, str) and is_module_text(model.encode(errors="replace")):
        return model.encode()
    if isinstance(model, str | PathLike):
        return _possible(checks.file_path("model", cast(Any, model)))
    return bytes(cast(Any, model)) if isinstance(model, bytearray | memoryview) else model


def _possible(path: Path) -> Path:
    """``path``; :class:`ModelError` if no system would accept it, such as a text that is no
    model."""
    try:
        path.exists()
    except OSError as error:
        hint = "give a path, the text of a StableHLO module, or the bytes of a file"
        shown = checks.shown(str(path))
        raise ModelError(f"{shown} is no path: {error.strerror}", (), hint) from error
    return path


def _folder(cache: str | Path | None, environment: Environment) -> Path | None:
    if cache is None:
        return None
    default = isinstance(cache, str) and not cache
    return environment.cache if default else checks.file_path("cache", cache)


def _driver() -> Any:
    """The compiler, imported on demand; an environment that only runs models may lack it."""
    try:
        return import_module("modelcc.driver")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] not in _COMPILERS:
            raise
        hint = "install modelcc with its dependencies: pip install modelcc"
        raise ModelError(f"compiling needs the package {error.name}", (), hint) from error


_COMPILERS = ("onnx", "llvmlite", "google")
"""Packages needed for compiling, not for running."""


def default_jobs(environment: Environment) -> int:
    """Number of compiler processes: from the environment, else one per core."""
    return environment.jobs if environment.jobs is not None else available_cores()


def default_threads(asked: int | None, environment: Environment) -> int:
    """As ``asked``, else from the environment, else one per core."""
    if asked is not None:
        return asked
    return environment.threads if environment.threads is not None else available_cores()


__all__ = ["Model", "compile", "export_onnx", "import_model", "load", "quantize", "verify"]
