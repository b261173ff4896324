"""A training step as one compiled program: forward, backward and update."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from modelcc.api import compile
from modelcc.driver import NOWHERE, target_of
from modelcc.emit.delivery import Delivery, deliver
from modelcc.ir.constant import Constant
from modelcc.ir.errors import ModelError
from modelcc.ir.graph import Graph
from modelcc.ir.index import Range, Sym
from modelcc.ir.types import Array, TensorType
from modelcc.model import Model
from modelcc.optim.clipping import Clipping
from modelcc.optim.optimizer import Optimizer
from modelcc.options import Options
from modelcc.targets.c.delivery.facts import DeliveryRequest
from modelcc.targets.native.host import PORTABLE
from modelcc.tensor.evaluation import results_of
from modelcc.tensor.lazy import array_type, unique
from modelcc.tensor.memory_budget import compiled_within
from modelcc.tensor.tensor import Tensor
from modelcc.tensor.trees import flatten, like
from modelcc.training.batches import as_arrays
from modelcc.training.differences import require_same
from modelcc.training.finite import NonFiniteError, require_finite
from modelcc.training.objective import Loss
from modelcc.training.parts import parts_of
from modelcc.training.program import (
    MODEL,
    BatchTypes,
    Recipe,
    StepProgram,
    evaluation_program,
    hollow,
    named_tensors,
    step_program,
)
from modelcc.version import VERSION


@dataclass(frozen=True)
class CompiledStep:
    """A program, and its compiled model."""

    program: StepProgram
    model: Model


@dataclass
class Prepared:
    """Compiled programs for batches of these ``types``."""

    types: BatchTypes
    step: CompiledStep | None = None
    evaluation: CompiledStep | None = None


class TrainStep:
    """Training of ``model``, a step for each call: ``step(x, y)`` returns the loss by name.

    ``loss(model, *batch)`` returns one float, or a pair of it and a dict of metrics.  The model is
    a :class:`modelcc.nn.Module`, in the mode that it has, or a tree of tensors, whose floats are
    trained.  Forward, backward and update are one program, compiled for each form and shapes of
    batches; ``batch_dim`` names axis 0 of all of them, so that one program serves any size.

    ``clip`` changes gradients before the update; ``accumulate`` splits a batch into that many parts
    in sequence, whose gradients are averaged.  ``check_finite`` checks every loss and update, and
    names the operation that produced the first NaN or infinity; it keeps a copy of all values for
    that, and restores it.  With ``memory`` (``"512MB"``) the arena of the step is limited to that:
    values of the forward pass are recomputed.  ``options`` are those of
    :func:`modelcc.compile`.
    """

    def __init__(
        self,
        model: Any,
        loss: Loss,
        optimizer: Optimizer,
        *,
        clip: Clipping | None = None,
        accumulate: int = 1,
        batch_dim: str | None = None,
        check_finite: bool = False,
        memory: int | str | None = None,
        **options: Any,
    ) -> None:
        """The tensors of ``model`` are captured as they are now, and are not modified."""
        if accumulate < 1 or (accumulate > 1 and batch_dim is not None):
            raise ModelError(f"accumulate={accumulate}", ("TrainStep",),
                             "give 1 or more, and no batch_dim with more than 1")  # fmt: skip
        parts = parts_of(model)
        state = optimizer.init(parts.params)
        self.check_finite = check_finite
        self.memory = memory
        self.options = options
        self.batch_dim = batch_dim
        self._recipe = Recipe(parts.hollow(), loss, optimizer, hollow(state), clip, accumulate)
        self.types = {n: x.type for n, x in named_tensors(parts, state).items()}
        self._values = {n: x.numpy() for n, x in named_tensors(parts, state).items()}
        self._ahead: CompiledStep | None = None
        self._entered: CompiledStep | None = None
        self._prepared: dict[Hashable, Prepared] = {}

    def __call__(self, *batch: Any, **named: Any) -> dict[str, Array]:
        """Train on a batch: ``loss`` and the metrics, from before the update.

        :class:`~modelcc.training.finite.NonFiniteError` if ``check_finite`` and one is not finite.
        """
        arrays, prepared = self._given(batch, named)
        compiled = self._step_of(prepared)
        before = self.values if self.check_finite else {}
        self._enter(compiled)
        program = compiled.program
        results = results_of(compiled.model, [*arrays, *(self._values[n] for n in program.reads)])
        reported = dict(zip(program.reported, results, strict=True))
        if self.check_finite:
            feeds = dict(zip(prepared.types.names(), arrays, strict=True)) | before
            self._require_finite(compiled.program.graph, feeds, reported, before)
        return reported

    def _require_finite(
        self,
        graph: Graph,
        feeds: Mapping[str, Array],
        reported: Mapping[str, Array],
        before: Mapping[str, Array],
    ) -> None:
        try:
            require_finite(graph, feeds, reported, self.values)
        except NonFiniteError:
            self.load(before)
            raise

    def evaluate(self, *batch: Any, **named: Any) -> dict[str, Array]:
        """Loss and metrics of the current model in inference mode; no state changes."""
        arrays, prepared = self._given(batch, named)
        found = prepared.evaluation
        if found is None:
            program = evaluation_program(self._recipe.parts, self._recipe.loss, prepared.types)
            found = prepared.evaluation = self._built(program)
        values, program = self.values, found.program
        results = results_of(found.model, [*arrays, *(values[n] for n in program.reads)])
        return dict(zip(program.reported, results, strict=True))

    def compile(self, *batch: Any, **named: Any) -> Model:
        """The compiled step for batches like this one, without running it."""
        return self._step_of(self._given(batch, named)[1]).model

    def deliver(
        self, folder: str | Path, *batch: Any, name: str = "train", **named: Any
    ) -> Delivery:
        """The step for batches like this one as C in ``folder``, without allocation, in memory of
        the caller; parameters and other states start with their current values.

        Only layers that are not frozen are updated, and need memory for it.  The result has the
        sizes in bytes of the arena, of states and of weights.
        """
        program = self._step_of(self._given(batch, named)[1]).program
        return write_c(program, self.values, Path(folder), name, self.options)

    @property
    def module(self) -> Any:
        """The current model."""
        parts, values = self._recipe.parts, self.values
        return parts.rebuilt({p: Tensor.of_array(values[f"{MODEL}.{p}"]) for p in parts.tensors})

    @property
    def values(self) -> dict[str, Array]:
        """All tensors that training updates or depends on, as ``model.…`` and ``optimizer.…``."""
        if self._ahead is not None:
            self._values |= self._ahead.model.states
            self._ahead = None
        return dict(self._values)

    def load(self, values: Mapping[str, Array]) -> None:
        """Continue from :attr:`values` of another run.

        :class:`ModelError` lists missing and unknown tensors, and those of another type.
        """
        require_same(self.types, {name: np.asarray(array) for name, array in values.items()})
        self._values = {name: _own(values[name]) for name in self.types}
        self._ahead = None
        self._entered = None

    def _enter(self, compiled: CompiledStep) -> None:
        """Moves the states to where ``compiled`` updates them."""
        if self._ahead is compiled:
            return
        values, states = self.values, compiled.program.states
        if self._entered is not compiled:
            compiled.model.reset({name: values[name] for name in states})
        self._entered = self._ahead = compiled
        # States inside the compiled model are not stored twice.
        self._values = {name: array for name, array in values.items() if name not in states}

    def _step_of(self, prepared: Prepared) -> CompiledStep:
        if prepared.step is None:
            prepared.step = self._built(step_program(self._recipe, prepared.types), self.memory)
        return prepared.step

    def _built(self, program: StepProgram, memory: int | str | None = None) -> CompiledStep:
        if memory is None:
            return CompiledStep(program, compile(program.graph, **self.options))
        return CompiledStep(program, compiled_within(program.graph, memory, **self.options))

    def _given(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[list[Array], Prepared]:
        """The arrays of a batch, and the programs for its types."""
        plain = [x if type(x) is np.ndarray else as_arrays(x) for x in args]
        form: Hashable = len(args)
        arrays = plain
        if kwargs or any(type(x) is not np.ndarray for x in plain):
            arrays, form = flatten((tuple(plain), as_arrays(kwargs)))
        first = 0 if self.batch_dim is None else 1
        key = (form, *[(x.ndim, x.shape[first:], x.dtype) for x in arrays])
        found = self._prepared.get(key)
        if found is None:
            found = self._prepared[key] = Prepared(self._types_of(plain, kwargs, arrays))
        return arrays, found

    def _types_of(self, args: Any, kwargs: Any, arrays: Sequence[Array]) -> BatchTypes:
        places = like((tuple(args), as_arrays(kwargs)), iter(range(len(arrays))))
        types = [array_type(array.shape, array.dtype) for array in arrays]
        if self.batch_dim is None:
            return BatchTypes(places, tuple(types))
        named = tuple([_named(type, self.batch_dim) for type in types])
        return BatchTypes(places, named, ((self.batch_dim, Range(1, None)),))


def _named(type: TensorType, dim: str) -> TensorType:
    return unique(replace(type, shape=(Sym(dim), *type.shape[1:]))) if type.shape else type


def _own(array: Array) -> Array:
    made = np.array(array, order="C")
    made.flags.writeable = False
    return made


def write_c(
    program: StepProgram,
    values: Mapping[str, Array],
    folder: Path,
    name: str,
    options: Mapping[str, Any],
) -> Delivery:
    """The step ``program`` as C in ``folder``, with initial states ``values``; sizes and files.

    Tensors that the step only reads, such as frozen layers, are among the weights.
    """
    wanted: dict[str, Any] = {"threads": 1, "cpu": PORTABLE, **options, "target": "c"}
    asked = Options(**wanted)
    request = DeliveryRequest(name, "array", program.graph.name, VERSION)
    graph = _self_contained(program, values)
    delivery = deliver(graph, None, request, target_of(asked), asked, NOWHERE)
    folder.mkdir(parents=True, exist_ok=True)
    for file in delivery.files:
        (folder / file.name).write_bytes(file.contents)
    return delivery


def _self_contained(program: StepProgram, values: Mapping[str, Array]) -> Graph:
    """The graph with the contents of all inputs that are not part of a batch."""
    graph, interface = program.graph, program.graph.interface
    assert interface is not None
    first = {n: Constant(values[n]) for n in program.states if values[n].any()}
    states = {n: replace(s, given=n in first) for n, s in interface.states.items()}
    return replace(
        graph,
        inputs=tuple(n for n in graph.inputs if n not in program.reads),
        constants={**graph.constants, **{n: Constant(values[n]) for n in program.reads}},
        initial=first,
        interface=replace(
            interface,
            inputs={n: s for n, s in interface.inputs.items() if n not in program.reads},
            states=states,
        ),
    )
