"""Programs as bytecode: the bytes of docs/bytecode.md."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from modelcc.ir.errors import ModelError
from modelcc.ir.index import Index, evaluate, symbols
from modelcc.ir.loop import Function
from modelcc.ir.naming import user_name
from modelcc.ir.program import CopyTensor, Launch, Step, leaves
from modelcc.ir.region import Branch, Repeat
from modelcc.ir.types import DTYPES
from modelcc.targets.mcu.delivery.model import EmbeddedModel
from modelcc.targets.vm.kernel import KernelUse, VmKernel, merged, use_of
from modelcc.targets.vm.loops import CountedLoop, expression, first_turn, values_of
from modelcc.targets.vm.scratch import Scratch

MAGIC, WORDS, NOWHERE = 0x4243434D, 20, 0xFFFFFFFF
ALIGNMENT = 8
LAUNCH, COPY, BRANCH, REPEAT = 1, 2, 3, 4
PLAIN, WITH_LOOPS = 1, 2
"""Versions: interpreters of the first one do not support loops."""

OWN_LAUNCH, OWN = 3, 5
"""Words of steps, without a launch's references; changes follow."""

MOST_TRIPS = 0x7FFFFFFF
ARENA, CONSTANTS, TENSORS = 0, 1, 2
KINDS = tuple(DTYPES)
"""Element types, by their numbers in the file."""

PLACE = 27
"""Bits of a reference to memory that are a byte offset from a base, whose number is above them."""


_HINT = "--emit c has a form of them"


@dataclass(frozen=True)
class Encoded:
    """A model's bytes, its kernels (with the nodes that use them), and its arena's bytes, of which
    ``scratch`` replace the stack arrays of C kernels."""

    data: bytes
    kernels: tuple[VmKernel, ...]
    sources: Mapping[str, tuple[str, ...]]
    arena: int
    scratch: int


def encode(model: EmbeddedModel) -> Encoded:
    """The bytecode of a model; :class:`ModelError` for what it cannot express."""
    work = _Encoding(model, Scratch(model.program))
    steps = work.steps(model.program.steps)
    kernels = merged([use.kernel for use in work.uses])
    sources: dict[str, dict[str, None]] = {}
    for use, source in work.launched:
        sources.setdefault(use.kernel.digest, {}).update(dict.fromkeys(source))
    arena = work.scratch.arena
    if max(arena, sum(one.bytes for one in model.arrays)) >= 1 << PLACE:
        raise ModelError(f"{model.program.name} takes 128 MiB or more of RAM or of constants")
    found = {digest: tuple(nodes) for digest, nodes in sources.items()}
    data = work.file(steps, kernels)
    return Encoded(data, kernels, found, arena, arena - model.arena)


@dataclass
class _Texts:
    """A table of zero-terminated strings, each once."""

    data: bytearray = field(default_factory=bytearray)
    known: dict[str, int] = field(default_factory=dict[str, int])

    def place(self, text: str) -> int:
        """The offset of a string."""
        if text not in self.known:
            self.known[text] = len(self.data)
            self.data += text.encode("utf-8", "replace").replace(b"\0", b" ") + b"\0"
        return self.known[text]


class _Encoding:
    def __init__(self, model: EmbeddedModel, scratch: Scratch) -> None:
        self.model = model
        self.scratch = scratch
        self.uses: dict[KernelUse, int] = {}
        self.launched: list[tuple[KernelUse, tuple[str, ...]]] = []
        self._functions: dict[tuple[object, ...], KernelUse] = {}
        self._loops: tuple[CountedLoop, ...] = ()
        self._version = PLAIN
        self._names = _Texts()
        self._constants, self._places = _constants(model)

    # --- steps

    def steps(self, steps: Sequence[Step]) -> list[int]:
        """Words of steps."""
        found: list[int] = []
        for step in steps:
            found += self._step(step)
        return found

    def _step(self, step: Step) -> list[int]:
        match step:
            case Launch():
                return self._launch(step)
            case CopyTensor():
                names = step.target, step.source_tensor
                head = [self._source(step.source), *map(self._reference, names)]
                changes = self._moved(2, names)
                return self._words(COPY, [*head, self._bytes(step.target)], changes)
            case Branch():
                then, other = self.steps(step.then), self.steps(step.other)
                head = [self._source(step.source), self._reference(step.condition)]
                changes = self._moved(2, (step.condition,))
                head += len(then), len(other)
                return [*self._words(BRANCH, head, changes), *then, *other]
            case Repeat():
                return self._repeat(step)
            case _:
                raise ValueError(f"{type(step).__name__} steps come to no microcontroller")

    def _words(self, kind: int, words: Sequence[int], changes: Sequence[int]) -> list[int]:
        return [kind | (1 + len(words) + len(changes)) << 8, *words, *changes]

    def _repeat(self, step: Repeat[Step]) -> list[int]:
        self._version = WITH_LOOPS
        trips = MOST_TRIPS if step.trips is None else step.trips
        source = step.source or next((s.source for s in leaves(step.body) if s.source), ())
        if not isinstance(trips, int):
            raise ModelError("bytecode has no form of loops whose length varies", source, _HINT)
        outside, self._loops = self._loops, (*self._loops, CountedLoop(step.counter, step.trips))
        body = self.steps(step.body)
        head = [self._source(step.source), max(trips, 0), len(body)]
        tested = () if step.condition is None else (step.condition,)
        head += [self._reference(name) for name in tested] or [NOWHERE]
        found = [*self._words(REPEAT, head, self._moved(4, tested)), *body]
        self._loops = outside
        return found

    def _launch(self, step: Launch) -> list[int]:
        function = self.model.program.callee[step.callee]
        if not isinstance(function, Function):
            hint = "leave --library out: interpreters have kernels of their own"
            raise ModelError(f"bytecode cannot call {function.call.symbol}", step.source, hint)
        runs = values_of(step.sizes, self._loops, step.source)
        key = function.name, runs
        if key not in self._functions:
            sizes = tuple(dict(zip(function.sizes, run, strict=True)) for run in runs)
            self._functions[key] = use_of(function, sizes)
        use = self._functions[key]
        call = self.uses.setdefault(use, len(self.uses))
        self.launched.append((use, step.source))
        refs = [self._reference(name) for name in step.arguments]
        refs += (ARENA << PLACE | at for at in self.scratch.places(step, use.own))
        changes = self._moved(OWN_LAUNCH, step.arguments)
        for place, size in zip(use.given, step.sizes, strict=True):
            changes += self._change(OWN_LAUNCH + place, size)
        return self._words(LAUNCH, [self._source(step.source), call, *refs], changes)

    def _moved(self, first: int, names: Sequence[str]) -> list[int]:
        """Changes of the references to tensors, words from ``first`` on."""
        bindings = self.model.program.placed.bindings
        offsets = [bindings[name].offset for name in names]
        return [w for n, offset in enumerate(offsets) for w in self._change(first + n, offset)]

    def _change(self, place: int, value: Index) -> list[int]:
        """The change of a word to ``value``, if that depends on counters."""
        if not symbols(value):
            return []
        words = expression(value, [loop.counter for loop in self._loops])
        return [place | len(words) << 16, *words]

    def _source(self, source: Sequence[str]) -> int:
        return self._names.place(", ".join(source))

    def _reference(self, name: str) -> int:
        program = self.model.program
        binding = program.placed.bindings[name]
        if binding.place == "arena":
            return ARENA << PLACE | evaluate(binding.offset, first_turn(self._loops))
        if binding.place == "constant":
            return CONSTANTS << PLACE | self._places[name]
        inputs = len(program.inputs)
        where = program.position(name)
        return TENSORS + where + (0 if binding.place == "input" else inputs) << PLACE

    def _bytes(self, name: str) -> int:
        size = self.model.program.types[name].bytes
        assert isinstance(size, int)
        return size

    # --- the file

    def file(self, steps: Sequence[int], kernels: Sequence[VmKernel]) -> bytes:
        """All sections concatenated."""
        program = self.model.program
        head = [0] * WORDS
        body = bytearray(4 * WORDS)
        number = {kernel.digest: n for n, kernel in enumerate(kernels)}
        outputs = [n for n in program.outputs if n not in program.states]
        shapes = [*program.inputs, *outputs]
        extents = [list(program.types[name].shape) for name in shapes]
        shape_at = _appended(body, _words([int(str(n)) for one in extents for n in one]))
        tensors: list[int] = []
        for name, shape in zip(shapes, extents, strict=True):
            tensors += self._tensor(name, shape_at)
            shape_at += 4 * len(shape)
        ids = [part for k in kernels for part in (int(k.digest[8:], 16), int(k.digest[:8], 16))]
        calls: list[int] = []
        for use in self.uses:
            words = [number[use.kernel.digest], *(n & 0xFFFFFFFF for n in use.parameters)]
            calls.append(_appended(body, _words(words)))
        names = [self._names.place(t) for t in (program.name, self.model.machine.name)]
        head[0:2] = MAGIC, self._version
        head[4:7] = self.scratch.arena, len(program.inputs), len(outputs)
        head[7] = _appended(body, _words(tensors))
        head[8:10] = len(kernels), _appended(body, _words(ids))
        head[10:12] = len(calls), _appended(body, _words(calls))
        head[12:14] = _appended(body, _words(steps)), len(steps)
        body += bytes(-len(body) % ALIGNMENT)
        head[14:16] = _appended(body, bytes(self._constants)), len(self._constants)
        head[16:19] = _appended(body, bytes(self._names.data)), *names
        head[2] = len(body)
        body[: 4 * WORDS] = _words(head)
        head[3] = zlib.crc32(body[16:])
        body[: 4 * WORDS] = _words(head)
        return bytes(body)

    def _tensor(self, name: str, shape_at: int) -> list[int]:
        """The words of an input or output."""
        model, program = self.model, self.model.program
        type_ = program.types[name]
        kept = next((s for s in model.facts.states if s.input == name), None)
        first = None if kept is None else model.first(kept.tensor)
        constants_at = 0 if first is None else self._places[first.names[0]]
        kind = KINDS.index(type_.dtype.name) | len(type_.shape) << 8 | (kept is not None) << 16
        shown = user_name(name) if name in program.outputs else name
        return [
            self._names.place(shown), kind, self._bytes(name),
            program.room.get(name, NOWHERE), NOWHERE if first is None else constants_at, shape_at,
        ]  # fmt: skip


def _appended(body: bytearray, data: bytes) -> int:
    """Appends ``data`` to ``body`` at a multiple of 4; returns its offset."""
    body += bytes(-len(body) % 4)
    at = len(body)
    body += data
    return at


def _words(numbers: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(numbers)}I", *numbers)


def _constants(model: EmbeddedModel) -> tuple[bytearray, dict[str, int]]:
    """The constants' bytes, and their offsets."""
    data, places = bytearray(), dict[str, int]()
    for one in model.arrays:
        data += bytes(-len(data) % ALIGNMENT)
        places |= dict.fromkeys(one.names, len(data))
        little = one.dtype.numpy.newbyteorder("<")
        data += np.ascontiguousarray(one.array).view(one.dtype.numpy).astype(little).tobytes()
    for name, constant in model.program.constants.items():
        places.setdefault(name, 0 if constant.nbytes == 0 else places.get(name, 0))
    return data, places
