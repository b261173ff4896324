"""A compiled model, as Python sees it: call it, save it, look at it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from modelcc import checks
from modelcc.artifact.constants import block_size
from modelcc.artifact.errors import ArtifactError
from modelcc.artifact.file import Artifact, write_artifact
from modelcc.artifact.manifest import DimSpec, TensorSpec
from modelcc.artifact.manifest_json import ManifestError, manifest_from_json, manifest_to_json
from modelcc.cache.compile_cache import HOST_TARGETS
from modelcc.ir.errors import ModelError
from modelcc.ir.index import Range
from modelcc.ir.types import Array, TensorType
from modelcc.options import Options
from modelcc.report.formats import byte_text
from modelcc.runtime.errors import InputError, LoadError
from modelcc.runtime.opening import session_of
from modelcc.runtime.session import NamedOuts, Outs, Session
from modelcc.runtime.values import ValueSession

if TYPE_CHECKING:
    from modelcc.report.report import Report, StageTime


class Model:
    """A compiled model, ready to run; safe to call from several threads at once.

    It never changes but for its :attr:`states`, if it has any: without, copies are the model
    itself.  It can be pickled, with its states; another process that reads it needs the same kind
    of machine.
    """

    def __init__(
        self,
        artifact: Artifact,
        session: Session | LoadError,
        threads: int,
        target: str = "native",
        times: Sequence[StageTime] = (),
    ) -> None:
        """Made by :func:`modelcc.compile` and :func:`modelcc.load`; instead of a ``session`` with
        why there is none on this machine."""
        self._artifact = artifact
        self._opened = session
        self._times = tuple(times)
        self.threads = threads
        self.target = target

    @property
    def name(self) -> str:
        """The model's own name."""
        return self._artifact.manifest.name

    @property
    def session(self) -> Session:
        """What runs it, for callers that have addresses instead of arrays; LoadError if it is
        compiled for another machine than this one."""
        if isinstance(self._opened, LoadError):
            raise self._opened.with_traceback(None)
        return self._opened

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Name, element type and shape of each input; extents may be named dimensions."""
        kept = {state.input for state in self._artifact.manifest.states.values()}
        return tuple(s for s in self._artifact.manifest.inputs if s.name not in kept)

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """Name, element type and shape of each output."""
        kept = {state.output for state in self._artifact.manifest.states.values()}
        return tuple(s for s in self._artifact.manifest.outputs if s.name not in kept)

    @property
    def states(self) -> dict[str, Array]:
        """What the model keeps from call to call, by name: arrays that no call changes."""
        if not self._artifact.manifest.states:
            return {}
        return self.session.states.now if isinstance(self.session, ValueSession) else {}

    def reset(self, states: Mapping[str, object] | None = None) -> None:
        """Set :attr:`states` to what they were at first, or to arrays by name.

        :class:`InputError` for an unknown name or an array of another type.
        """
        given = {} if states is None else checks.mapping("states", states, "give net.states")
        if isinstance(self.session, ValueSession):
            self.session.states.reset(given)
        elif given:
            raise InputError(f"{self.name}.reset", "no states", f"'{next(iter(given))}'",
                             "this model has none")  # fmt: skip

    @property
    def dims(self) -> tuple[DimSpec, ...]:
        """Named dimensions, with the least and greatest size of each."""
        return self._artifact.manifest.dims

    def __repr__(self) -> str:
        manifest = self._artifact.manifest
        machine = manifest.machine.cpu or manifest.machine.triple.split("-", 1)[0]
        threads = f"{self.threads} thread{'s' if self.threads > 1 else ''}"
        weights = f"{byte_text(block_size(manifest.constants))} of weights"
        lines = [f"<modelcc.Model {self.name}: {self.target} {machine}, {threads}, {weights}"]
        lines += [f"  input   {spec.name}: {spec}" for spec in self.inputs]
        lines += [f"  output  {spec.name}: {spec}" for spec in self.outputs]
        specs = {spec.name: spec for spec in manifest.inputs}
        if manifest.interface is not None and manifest.interface.call is not None:
            lines.append(f"  call    {self.name}{manifest.interface.call}")
        lines += [f"  state   {n}: {specs[state.input]}" for n, state in manifest.states.items()]
        for dim in self.dims:
            most = "" if dim.high is None else dim.high
            lines.append(f"  size    {dim.name}: {dim.low}..{most}")
        return "\n".join(lines) + ">"

    def __call__(self, *arguments: object, out: Outs | None = None, **named: object) -> Array | Any:
        """The output, or a tuple of the outputs, for inputs in order, by keyword, or in a dict.

        A program of ``torch.export`` takes the containers that it was exported with, too, and gives
        its results in theirs.
        Inputs are NumPy arrays or anything with ``__dlpack__`` and are not copied if contiguous.
        ``out`` gives arrays to write into, or is ``"device"``: results stay in the memory of the
        GPU, for whoever takes ``__dlpack__`` or ``__cuda_array_interface__``.
        States change, unless the call fails; where there are any, calls from several threads take
        turns.  :class:`InputError` says what does not fit, :class:`RunError` what stopped the
        model, and :class:`LoadError` why this machine cannot run it.
        """
        if out is None and not named:
            return self.session(*arguments)
        return self.session(*arguments, out=out, **named)

    def run(self, feeds: Mapping[str, object], out: NamedOuts | None = None) -> dict[str, Any]:
        """Outputs by name for inputs by name; otherwise as a call."""
        if not hasattr(feeds, "keys"):
            where = f"{self.name}.run"
            raise InputError(where, "inputs by name", type(feeds).__name__, "give a dict")
        return self.session.run(feeds, out)

    def limit(self, seconds: float | None) -> None:
        """Give up calls after so many seconds, on devices that can be left at work (``cuda``,
        ``amdgpu``)."""
        self.session.limit(seconds)

    def overlap(self, on: bool) -> None:
        """Whether kernels may begin before the one before them has ended, for which they wait
        (``cuda`` from sm_90 on, where it is the default), in calls whose sizes and places are new;
        of no effect elsewhere."""
        self.session.overlap(checks.flag("on", on))

    @property
    def digest(self) -> str:
        """SHA-256 of the file that :meth:`save` writes, to be given to ``modelcc.load``."""
        return self._artifact.digest

    def save(self, path: str | Path) -> None:
        """Write the artifact, ``model.mcc``; ``OSError`` if the path cannot be written."""
        place = checks.file_path("path", path)
        try:
            write_artifact(place, self._artifact)
        except OSError as error:  # about the caller's file, not about a temporary one
            raise OSError(error.errno, error.strerror, str(place)) from error

    def report(self, profile: Mapping[str, object] | bool = False, runs: int = 20) -> Report:
        """Kernels, memory plan and, just after compiling, the compiler's times.

        ``profile`` (inputs, or True for random ones) also measures each kernel: the median of so
        many ``runs``.
        """
        report: Report | None = import_module("modelcc.report.in_artifact").report_in(
            self._artifact
        )
        if report is None:
            raise ModelError("the artifact carries no report", (self.name,), "compile it again")
        if profile is not False:
            given = profile is not True
            feeds = (
                checks.mapping("profile", profile, "give True for random inputs")
                if given
                else self.random_inputs(report.sizes)
            )
            counted = checks.whole_number("runs", runs, 1)
            taken = self.session.profile(feeds, len(report.kernels), counted)
            seconds = np.median(taken, axis=0)
            report = report.with_profile([float(s) for s in seconds])
        return report.with_stages(self._times)

    def with_times(self, times: Sequence[StageTime]) -> Model:
        """The same model, whose report has the compiler's ``times``."""
        return Model(self._artifact, self._opened, self.threads, self.target, times)

    def with_report(self, report: Report) -> Model:
        """The same model, which tells another report."""
        artifact = import_module("modelcc.report.in_artifact").with_report(self._artifact, report)
        return Model(artifact, self._opened, self.threads, self.target, self._times)

    def random_inputs(
        self, sizes: Mapping[str, int] | None = None, seed: int = 0
    ) -> dict[str, Array]:
        """Random arrays for all inputs; ``sizes`` are as for :meth:`nominal_sizes`."""
        types = {spec.name: TensorType(spec.shape, spec.dtype) for spec in self.inputs}
        feeds: Any = import_module("modelcc.feeds.random")
        chosen = self.nominal_sizes(sizes)
        return feeds.random_feeds(types, chosen, checks.whole_number("seed", seed))

    def nominal_sizes(self, sizes: Mapping[str, int] | None = None) -> dict[str, int]:
        """A modest size for every named dimension, ``sizes`` among them, that the model takes."""
        asked = {} if sizes is None else checks.sizes("sizes", sizes)
        bounds = {dim.name: Range(dim.low, dim.high) for dim in self.dims}
        constraints = [check.condition for check in self._artifact.manifest.checks]
        feeds: Any = import_module("modelcc.feeds.random")
        return feeds.nominal_sizes(bounds, asked, [spec.shape for spec in self.inputs], constraints)

    def __copy__(self) -> Model:
        return self._rebuilt() if self._artifact.manifest.states else self

    def __deepcopy__(self, memo: object) -> Model:
        return self.__copy__()

    def _rebuilt(self) -> Model:
        """A model with states of its own, as they are now here."""
        made = opened(self._artifact, self.target, self.threads)
        made.reset(self.states)
        return made

    def __reduce__(self) -> tuple[object, ...]:
        artifact = self._artifact
        pieces = (dict(artifact.objects), dict(artifact.constants), dict(artifact.sources))
        manifest, initial = manifest_to_json(artifact.manifest), dict(artifact.states)
        states = (initial, self.states)
        return _unpickled, (manifest, *pieces, *states, self.target, self.threads)


def opened(artifact: Artifact, target: str, threads: int) -> Model:
    """``artifact`` as a model; :class:`LoadError` if this machine cannot run it."""
    return Model(artifact, session_for(artifact, target, threads), threads, target)


def session_for(artifact: Artifact, target: str, threads: int) -> Session:
    """What runs ``artifact``; the compiler is asked only if its target has its own loader."""
    if target in HOST_TARGETS:
        return session_of(artifact, threads)
    driver: Any = import_module("modelcc.driver")
    loader = driver.target_of(Options(target=target, threads=threads))
    session: Session = loader.load(artifact, threads)
    return session


def _unpickled(
    manifest: str,
    objects: Mapping[str, bytes],
    constants: Mapping[str, Array],
    sources: Mapping[str, str],
    initial: Mapping[str, Array],
    states: Mapping[str, Array],
    target: str,
    threads: int,
) -> Model:
    try:
        found = manifest_from_json(manifest)
    except ManifestError as error:
        raise ArtifactError("pickled model", str(error), "pickle it again") from error
    artifact = Artifact(found, objects, constants, sources, states=initial)
    model = opened(artifact, target, threads)
    model.reset(states)
    return model
