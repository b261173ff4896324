"""THE pipeline: from a model to code, as one list of stages.

Blocks are the levels of the design; each stage is a pass or a lowering from one level to the next.
One observer receives every stage with the program before and after it, and its seconds.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, cast

from modelcc.artifact.file import Artifact, write_artifact
from modelcc.cache.compile_cache import (
    HOST_TARGETS,
    artifact_cache,
    artifact_key,
    host_key,
    keep,
    seen_model,
)
from modelcc.cache.file_digests import Seen, seen
from modelcc.cache.maintenance import trim_now_and_then
from modelcc.collection import no_cycle_collection
from modelcc.feeds.program_sizes import greatest_sizes, usual_sizes
from modelcc.frontends.choice import ONNX, frontend_of
from modelcc.frontends.onnx.external import external_files
from modelcc.frontends.onnx.loader import LoadedModel, load
from modelcc.frontends.onnx.loader import Model as OnnxModel
from modelcc.ir.errors import ModelError
from modelcc.ir.graph import Graph
from modelcc.ir.loop import Function
from modelcc.ir.mapped import release_all
from modelcc.ir.program import Program
from modelcc.ir.tensor import TensorProgram
from modelcc.levels.text import verify_level
from modelcc.options import GENERATED, Options
from modelcc.passes.graph.assert_sizes import AssertSizes
from modelcc.passes.graph.batches_first import BatchesFirst
from modelcc.passes.graph.bodies import CountedInBodies, InBodies, in_bodies
from modelcc.passes.graph.bound_dimensions import BoundDimensions
from modelcc.passes.graph.canonical_quantization import CanonicalQuantization
from modelcc.passes.graph.canonicalise import Canonicalise
from modelcc.passes.graph.common_subexpressions import CommonSubexpressions
from modelcc.passes.graph.constant_channels import ConstantChannels
from modelcc.passes.graph.conv_transpose_to_conv import ConvTransposeToConv
from modelcc.passes.graph.dead_channels import DeadChannels
from modelcc.passes.graph.dead_code import DeadCode
from modelcc.passes.graph.decompose import Decompose
from modelcc.passes.graph.eliminate_reshapes import EliminateReshapes
from modelcc.passes.graph.eliminate_transposes import EliminateTransposes
from modelcc.passes.graph.fold_batch_norm import FoldBatchNorm
from modelcc.passes.graph.fold_constants import FoldConstants
from modelcc.passes.graph.intern_strings import InternStrings
from modelcc.passes.graph.join_loops import JoinLoops
from modelcc.passes.graph.join_parts import JoinParts
from modelcc.passes.graph.lower_precision import lowerings
from modelcc.passes.graph.merge_branches import MergeBranches
from modelcc.passes.graph.merge_pads import MergePads
from modelcc.passes.graph.narrow_masks import NarrowMasks
from modelcc.passes.graph.pack_weights import PackWeights
from modelcc.passes.graph.recognise_attention import RecogniseAttention
from modelcc.passes.graph.recognise_gelu import RecogniseGelu
from modelcc.passes.graph.recognise_hard_swish import RecogniseHardSwish
from modelcc.passes.graph.recognise_layer_norm import RecogniseLayerNorm
from modelcc.passes.graph.recognise_rms_norm import RecogniseRmsNorm
from modelcc.passes.graph.recognise_silu import RecogniseSilu
from modelcc.passes.graph.recognise_softmax import RecogniseSoftmax
from modelcc.passes.graph.regular_gathers import RegularGathers
from modelcc.passes.graph.scalar_quantization import ScalarQuantization
from modelcc.passes.graph.simplify_algebra import SimplifyAlgebra
from modelcc.passes.graph.simplify_control import SimplifyControl
from modelcc.passes.graph.sum_after_loops import SumAfterLoops
from modelcc.passes.graph.trim_windows import TrimWindows
from modelcc.passes.pass_base import Pass
from modelcc.passes.program.apply_plan import apply_plan
from modelcc.passes.program.check_first import check_first
from modelcc.passes.program.order import order_steps
from modelcc.passes.program.plan_memory import plan_memory
from modelcc.passes.tensor.assert_reads import AssertReads
from modelcc.passes.tensor.check_indices import CheckIndices
from modelcc.passes.tensor.from_graph import lower_graph
from modelcc.passes.tensor.fuse import FuseKernels
from modelcc.passes.tensor.hoist_invariants import HoistInvariants
from modelcc.passes.tensor.permute_products import PermuteProducts
from modelcc.passes.tensor.regions import InRegions
from modelcc.pipeline import (
    Observer,
    PipelineStage,
    StageError,
    StageRun,
    all_of,
    block,
    from_block,
    numbered,
    run_stages,
)
from modelcc.report.in_artifact import REPORT, report_in, with_report
from modelcc.report.lowered import lowered_text
from modelcc.report.report import StageTime, report_of
from modelcc.report.savings import ChannelSaving, channel_savings, savings_rows
from modelcc.report.stage_progress import announcer, log_stage
from modelcc.targets.base import BuildConfig, BuildContext, Module, Target, TargetOptions, in_order
from modelcc.targets.native.cpu_target import CpuTarget
from modelcc.targets.registry import make_target
from modelcc.tune.database import FILE, Database
from modelcc.tune.model_rows import model_key, of_models, rows_for

ModelSource = OnnxModel | LoadedModel | Graph | Any
"""A path of an .onnx file, its bytes, an ``onnx.ModelProto``, an input of another frontend
(:mod:`modelcc.frontends.choice`), or a graph built by hand."""

_LOGGER = logging.getLogger(__name__)
DEFAULT = Options()
NOWHERE = BuildConfig()


@dataclass(frozen=True)
class Translation:
    """A program with its source modules, and once built, with their object files."""

    program: Program
    modules: tuple[Module, ...]
    objects: tuple[bytes, ...] = ()


def pipeline(
    target: Target, options: Options, config: BuildConfig, context: BuildContext | None = None
) -> tuple[PipelineStage, ...]:
    """All stages from a model to an artifact, in order; a ``context`` may start builds early."""
    graphs, tensors = target.graph_passes(), target.tensor_passes()
    stages = (
        *block("import", ("import", partial(import_for, target, options=options))),
        *block(
            "graph",
            BoundDimensions(),
            *_in_bodies(
                *graphs.functions,
                Decompose(),
                CanonicalQuantization(graphs.signs),
                CommonSubexpressions(),
                *graphs.quantised,
                ScalarQuantization(),
                PackWeights(),
                DeadCode(),
                FoldConstants(narrow=graphs.narrow),
                SimplifyControl(),
                Canonicalise(),
                CommonSubexpressions(),
                JoinLoops(),
                SumAfterLoops(),
                RecogniseGelu(),
                RecogniseSilu(),
                RecogniseHardSwish(),
                RecogniseLayerNorm(),
                RecogniseRmsNorm(),
                RecogniseSoftmax(),
                SimplifyAlgebra(),
                RegularGathers(),
                JoinParts(),
                ConvTransposeToConv(computed=False),
                FoldConstants(narrow=graphs.narrow),
                *(EliminateReshapes(), BatchesFirst(), EliminateTransposes()),
                FoldBatchNorm(),
                MergeBranches(),
                MergePads(),
                TrimWindows(),
                ConstantChannels(),
                DeadChannels(graphs.channels),
                *graphs.convolutions,
                *_attention(graphs.products, options.precision),
                *_tidying(graphs.narrow),
            ),
            InternStrings(),
        ),
        *block("lower", *_checked(partial(lower_graph, capacity=target.capacity), options)),
        *block(
            "tensor",
            *_in_regions(*tensors.layouts, tensors.inline, PermuteProducts()),
            *_in_regions(*tensors.operands, FuseKernels(), *tensors.kernels),
            HoistInvariants(),
            *tensors.whole,
        ),
        *_back_end(target, context or in_order(target, config)),
    )
    return _restricted(numbered(stages), options)


def _attention(products: Sequence[Pass[Graph]], precision: str) -> tuple[Pass[Graph], ...]:
    """Attention, its masks and products, and then reduced precision."""
    return (RecogniseAttention(), NarrowMasks(), *products, *lowerings(precision))


def _tidying(narrow: bool) -> tuple[Pass[Graph], ...]:
    """Cleans up after the other passes over graphs."""
    first = (EliminateTransposes(), EliminateReshapes(), Canonicalise(), SimplifyControl())
    return (*first, FoldConstants(narrow=narrow), CommonSubexpressions(), DeadCode())


def _back_end(target: Target, context: BuildContext) -> tuple[PipelineStage, ...]:
    """From the tensor level to an artifact."""
    own = target.program_passes()
    return (
        *block("schedule", ("schedule", _scheduler(target, context))),
        *block("loop", ("legalize", _on_functions(context.legalize))),
        *block("plan", check_first, order_steps, *own, ("plan_memory", partial(_planned, target))),
        *block("emit", ("emit", partial(_emitted, context))),
        *block("build", ("build", _builder(context))),
        *block("package", ("package", _packager(target, context))),
    )


def _checked(lower: Callable[[Graph], TensorProgram], options: Options) -> tuple[Any, ...]:
    """Lowers to the tensor level, with checks of sizes and indices that come from data."""
    return (
        AssertSizes(),
        (lower_graph.__name__, lower),
        AssertReads(),
        CheckIndices(options.unchecked),
    )


def _in_bodies(*steps: Pass[Graph]) -> tuple[tuple[str, InBodies | CountedInBodies], ...]:
    """Graph passes under their own names."""
    return tuple((type(step).__name__, in_bodies(step)) for step in steps)


def _in_regions(*steps: Pass[TensorProgram]) -> tuple[tuple[str, InRegions], ...]:
    """Tensor passes under their own names."""
    return tuple((type(step).__name__, InRegions(step)) for step in steps)


def target_options(options: Options, tuned: tuple[tuple[str, str], ...] = ()) -> TargetOptions:
    """The options of the target, with ``tuned`` schedules by their kernels' keys."""
    return TargetOptions(
        options.cpu,
        options.optimize,
        options.threads,
        options.allows(options.winograd),
        options.allows(options.strassen),
        options.schedule,
        options.machine,
        tuned,
        () if options.kernels_by == GENERATED else options.libraries,
        options.kernels_by,
        options.ram,
        precision=options.precision,
    )


def target_of(options: Options, config: BuildConfig = NOWHERE, model: object = None) -> Target:
    """The target named by ``options``; :class:`ModelError` if there is none.

    It has the tuned schedules of the build configuration for the machine, if requested, and the
    choices for ``model`` as a whole.
    """
    target = make_target(options.target, target_options(options))
    if options.ram is not None and not target.tensor_passes().whole:
        hint = "leave ram out, or name a microcontroller: modelcc targets lists them"
        raise ModelError(f"target {target.name!r} streams no rows to fit into memory", (), hint)
    if not (options.tuned and isinstance(target, CpuTarget) and config.cache):
        return target
    with Database.open(config.cache / FILE, write=False) as database:
        rows = database.chosen(target.tuning_key)
    key = model_key(model, options.dims) if of_models(rows) else ""
    chosen = tuple(sorted(rows_for(rows, key).items()))
    return make_target(options.target, target_options(options, chosen)) if chosen else target


def import_model(model: ModelSource, options: Options) -> Graph:
    """The graph of a model, with ``options.keep`` among its outputs."""
    dims = dict(options.dims)
    graph = model if isinstance(model, Graph) else frontend_of(model).read(model, dims)
    unknown = [name for name in options.keep if name not in graph.types]
    if unknown:
        raise ModelError(f"there is no value {unknown[0]!r} to keep", (graph.name,))
    return _with_outputs(graph, options.keep) if options.keep else graph


def import_for(target: Target, model: ModelSource, options: Options) -> Graph:
    """As :func:`import_model`, with the default sizes of ``target`` for open dimensions."""
    graph = import_model(model, options)
    usual = tuple((n, size) for n, size in target.usual_dims.items() if n in graph.dims)
    if not usual or isinstance(model, Graph):
        return graph
    return import_model(model, replace(options, dims=(*options.dims, *usual)))


def _with_outputs(graph: Graph, more: Sequence[str]) -> Graph:
    new = [name for name in dict.fromkeys(more) if name not in graph.outputs]
    interface = graph.interface
    if interface is not None:
        outputs = {**interface.outputs, **{n: n for n in new}}
        interface = replace(interface, outputs=outputs, call=None if new else interface.call)
    return replace(graph, outputs=(*graph.outputs, *new), interface=interface)


@dataclass(frozen=True)
class Compiled:
    """A finished artifact; ``times`` are empty if it was found in the cache."""

    artifact: Artifact
    target: Target
    times: tuple[StageTime, ...] = ()

    def save(self, path: Path) -> None:
        """Write the artifact to ``path``, atomically."""
        write_artifact(path, self.artifact)


def compile_model(
    model: ModelSource | TensorProgram | Program,
    options: Options = DEFAULT,
    config: BuildConfig = NOWHERE,
    observer: Observer | None = None,
    entering: str = "import",
) -> Compiled:
    """The artifact of ``model``: from the build configuration's cache, else by running the
    pipeline.

    An ``observer`` must see the stages, so the cache of artifacts is bypassed then.  ``entering``
    is the block of the pipeline at which a program of another level enters.  :class:`ModelError` if
    the model or the options are invalid.
    """
    target = target_of(options, config, model)
    cache = config.cache if observer is None else None
    plain = options.target in HOST_TARGETS and not options.tuned
    own = host_key() if plain else target.key
    before = seen_model(model) if cache else []
    key = artifact_key(model, options, own, cache) if cache else None
    if cache and key:
        found = artifact_cache(cache).read(key)
        if found:
            _warn_of_notes(found, options)
            return Compiled(found, target)
    times: list[StageTime] = []
    graphs: list[Graph] = []
    files: list[Seen] = []
    savings: list[ChannelSaving] = []

    def note(run: StageRun) -> None:
        times.append(StageTime(run.stage.label, run.seconds))
        if isinstance(run.after, Graph):
            graphs[:] = [run.after]
        if isinstance(run.before, Graph) and isinstance(run.after, TensorProgram):
            release_all(constant.data for constant in run.before.constants.values())

    def source() -> Any:
        """The model, loaded as far as needed to find its external files."""
        if not (cache and key and before and frontend_of(model) is ONNX):
            return model
        start = perf_counter()
        loaded = load(cast("str | Path", model))
        files.extend(map(seen, external_files(loaded)))
        times.append(StageTime("import/load", perf_counter() - start))
        return loaded

    # An observer requires that stages run one after the other.
    with target.build_context(config, observer is None) as context, no_cycle_collection():
        stages = from_block(pipeline(target, options, config, context), entering)
        watching = all_of(note, noting_savings(savings), log_stage, check_stage, observer)
        begin = announcer(stages, config)
        artifact: Artifact = run_stages(stages, source(), watching, begin)
    artifact = _with_changes(_with_interface(artifact, graphs), savings, graphs, options)
    _warn_of_notes(artifact, options)
    if cache and key:
        keep(artifact, key, cache, before, files)
    if config.cache:
        trim_now_and_then(config.cache)
    return Compiled(artifact, target, tuple(times))


def check_stage(run: StageRun) -> None:
    """Verifies the result of a stage: :class:`StageError` names it, :class:`ModelError` is the
    user's."""
    if not isinstance(run.after, Graph | TensorProgram | Program):
        return
    try:
        verify_level(run.after, run.before)
    except ModelError as error:
        if run.stage.block == "import":
            raise
        raise StageError(f"stage {run.stage.label} made an invalid program: {error}") from error


def noting_savings(found: list[ChannelSaving]) -> Observer:
    """Collects the removed channels, and logs them."""

    def note(run: StageRun) -> None:
        if isinstance(run.before, Graph) and run.stage.name == DeadChannels.__name__:
            found.extend(channel_savings(run.before, run.after))
            for row in savings_rows(tuple(found)):
                _LOGGER.info("left out: %s", row)

    return note


def _with_interface(artifact: Artifact, last: Sequence[Graph]) -> Artifact:
    """With the interface of the ``last`` graph, if it has one, and the initial values of its
    states."""
    interface = last[0].interface if last else None
    if interface is None:
        return artifact
    states = {name: constant.data for name, constant in last[0].initial.items()}
    manifest = artifact.manifest.with_interface(interface)
    return replace(artifact, manifest=manifest, states=states)


def _with_changes(
    artifact: Artifact, savings: Sequence[ChannelSaving], last: Sequence[Graph], options: Options
) -> Artifact:
    """With the removed channels and the reduced precision of the ``last`` graph in its report."""
    precision = lowered_text(last, options.precision)
    report = report_in(artifact) if savings or precision else None
    if report is None:
        return artifact
    return with_report(artifact, replace(report, savings=tuple(savings), precision=precision))


def _warn_of_notes(artifact: Artifact, options: Options) -> None:
    """Logs notes, only if tuned schedules are used: these may deviate from the user's wishes."""
    report = report_in(artifact) if options.tuned else None
    for note in () if report is None else report.notes:
        _LOGGER.warning("%s", note)


def _scheduler(target: Target, context: BuildContext) -> Callable[[TensorProgram], Program]:
    def run(program: TensorProgram) -> Program:
        context.scheduling(program)
        return replace(target.schedule(program, context.scheduled), states=program.states)

    return run


def _on_functions(legalize: Callable[[Function], Function]) -> Callable[[Program], Program]:
    def run(program: Program) -> Program:
        legal = (legalize(c) if isinstance(c, Function) else c for c in program.callees)
        return replace(program, callees=tuple(legal))

    return run


def _planned(target: Target, program: Program) -> Program:
    return apply_plan(program, plan_memory(program, target.memory))


def _emitted(context: BuildContext, program: Program) -> Translation:
    return Translation(program, context.emit(program))


def _builder(context: BuildContext) -> Callable[[Translation], Translation]:
    def run(emitted: Translation) -> Translation:
        return replace(emitted, objects=context.build(emitted.modules))

    return run


def _packager(target: Target, context: BuildContext) -> Callable[[Translation], Artifact]:
    def run(built: Translation) -> Artifact:
        program = built.program
        fixed = greatest_sizes(program) if isinstance(program.placed.arena, int) else {}
        sizes = usual_sizes(program, fixed)
        report = report_of(program, target.name, sizes, target.device_facts(program, built.objects))
        return context.package(program, built.objects, {REPORT: report.to_json()})

    return run


_OPTIONAL = ("graph", "tensor")
"""Blocks whose stages preserve the program's level, semantics and checks."""


def _restricted(stages: tuple[PipelineStage, ...], options: Options) -> tuple[PipelineStage, ...]:
    """Without the stages to skip, and with the limited one stopping early."""
    names = {stage.name for stage in stages}
    limit = options.limit
    asked = (*options.skip, *((limit.stage,) if limit else ()))
    for name in asked:
        if name not in names:
            raise ModelError(
                f"there is no stage {name!r}", (), f"stages: {', '.join(sorted(names))}"
            )
    needed = [stage.name for stage in stages if stage.block not in _OPTIONAL]
    fixed = next((name for name in options.skip if name in needed), None)
    if fixed is not None:
        optional = ", ".join(stage.name for stage in stages if stage.name not in needed)
        raise ModelError(f"stage {fixed!r} cannot be left out", (), f"these can: {optional}")
    if limit and not any(s.counts_rewrites for s in stages if s.name == limit.stage):
        counting = ", ".join(stage.name for stage in stages if stage.counts_rewrites)
        raise ModelError(f"stage {limit.stage!r} counts no rewrites", (), f"these do: {counting}")
    kept = [stage for stage in stages if stage.name not in options.skip]
    if limit is None:
        return tuple(kept)
    return tuple(s.limited(limit.rewrites) if s.name == limit.stage else s for s in kept)
