"""A program as one Python file: kernels, their launchers, and ``run`` on torch's tensors."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from keyword import iskeyword
from typing import TypeAlias

from modelcc.ir.errors import ModelError
from modelcc.ir.index import Index, Sym, symbols
from modelcc.ir.index_text import python_source
from modelcc.ir.naming import user_name
from modelcc.ir.scalar_tree import reads
from modelcc.ir.tensor import Item, Kernel, Scatter, TensorProgram, View, item_inputs, item_outputs
from modelcc.ir.types import TensorType, dtype_of
from modelcc.schedule.canonical import CanonicalKernel, canonical
from modelcc.targets.triton.attention import attention_kernel
from modelcc.targets.triton.block import helpers_of
from modelcc.targets.triton.functions import torch_type
from modelcc.targets.triton.kernel import Config, TritonKernel, points_kernel
from modelcc.targets.triton.product import product_kernel
from modelcc.targets.triton.rows import rows_kernel
from modelcc.targets.triton.updates import updates_kernel

Kind: TypeAlias = Callable[[CanonicalKernel], TritonKernel | None]

KINDS: tuple[Kind, ...] = (attention_kernel, product_kernel, rows_kernel, points_kernel)
"""Kinds of kernels; the first that applies is used."""

_HEAD = '''\
"""{name} as kernels in Triton, made by modelcc.

{about}
"""

import os

import numpy as np
import torch
import triton
import triton.language as tl

TUNE = os.environ.get("TRITON_TUNE") == "1"
"""Whether every configuration is tried on the first call of a kernel, or the first one taken."""


def chosen(configs):
    """Configurations for the autotuner."""
    return configs if TUNE else configs[:1]


def check(tensor, name, shape, dtype):
    """Refuse a tensor that kernels would misread."""
    if tuple(tensor.shape) != tuple(shape) or tensor.dtype != dtype:
        raise ValueError(
            f"{{name}} is {{tensor.dtype}}{{list(tensor.shape)}}, not {{dtype}}{{list(shape)}}"
        )
    return tensor.contiguous()
'''

_CONSTANTS = '''

def load_constants(path, device):
    """The model's constants by name, from the .npz beside this file, if there are any."""
    if not CONSTANTS:
        return {}
    with np.load(path) as arrays:
        found = {name: torch.from_numpy(arrays[key]) for name, key in CONSTANTS.items()}
    found = {name: x.view(torch.bfloat16) if CONSTANTS[name].endswith(".bf16") else x
             for name, x in found.items()}
    return {name: x.to(device) for name, x in found.items()}
'''


@dataclass(frozen=True)
class NamedKernel:
    """A kernel of the file: its name, and its parameters."""

    name: str
    canonical: CanonicalKernel
    kernel: TritonKernel
    source: tuple[str, ...]

    @property
    def tensors(self) -> tuple[str, ...]:
        """Parameters that are pointers."""
        return (*self.canonical.inputs, *self.canonical.outputs)

    @property
    def sizes(self) -> tuple[str, ...]:
        """Parameters that are numbers."""
        return tuple(name for name, _ in self.canonical.dims)

    @property
    def constexprs(self) -> tuple[str, ...]:
        """Parameters that are known at compile time."""
        tuned = dict(self.kernel.configs[0]) if self.kernel.configs else dict[str, int]()
        return (*(n for n, _ in self.kernel.blocks), *(n for n in tuned if n.startswith("BLOCK")))


def triton_source(program: TensorProgram) -> str:
    """The file; :class:`ModelError` names what has no form in Triton."""
    return _File(program).text()


def triton_kernels(program: TensorProgram) -> tuple[NamedKernel, ...]:
    """The kernels of the file."""
    made = _File(program)
    made.text()
    return tuple(made.kernels.values())


@dataclass(eq=False)
class _File:
    program: TensorProgram
    kernels: dict[CanonicalKernel, NamedKernel] = field(
        default_factory=dict[CanonicalKernel, NamedKernel]
    )

    def __post_init__(self) -> None:
        self.types = dict(self.program.types)
        self.names: dict[str, str] = {}
        self.taken: set[str] = {"constants", "device", "run", "check", "chosen", "load_constants"}

    def text(self) -> str:
        """The whole file."""
        program = self.program
        steps = [(item, text) for item in program.items for text in self._step(item)]
        body = [*self._begin(), *_with_ends(steps, self._lasting(), self.names), self._result()]
        kernels = [text for k in self.kernels.values() for text in (_kernel_text(k), _launcher(k))]
        lines = [line for k in self.kernels.values() for line in k.kernel.lines]
        helpers = helpers_of(lines)
        about = (
            "run(inputs, constants) computes the model on the inputs' device.  Kernels are those "
            "that\nmodelcc fuses; their numbers (BLOCK_M ...) are yours to change: with "
            "TRITON_TUNE=1 Triton\ntries those that are listed.  f32 is multiplied as f32 "
            '(input_precision="ieee").'
        )
        configs = dict.fromkeys(
            _configs_text(k.kernel) for k in self.kernels.values() if k.kernel.configs
        )
        table = [f"    {n!r}: {_key(program, n)!r}," for n in program.constants]
        constants = "\n".join(["CONSTANTS = {", *table, "}"])
        parts = [
            _HEAD.format(name=program.name, about=about), constants, _CONSTANTS,
            *(f"\n{text}" for text in configs),
            *(f"\n{text}\n" for text in helpers.values()), *(f"\n{text}\n" for text in kernels),
            "\n" + "\n".join([self._head(), *(f"    {line}" for line in body)]),
        ]  # fmt: skip
        return "\n".join(parts) + "\n"

    # --- the function that runs the program

    def name(self, tensor: str) -> str:
        """A tensor's variable."""
        if tensor not in self.names:
            base = re.sub(r"\W+", "_", tensor).strip("_") or "t"
            base = f"t_{base}" if base[0].isdigit() or iskeyword(base) else base
            spelled, count = base, 0
            while spelled in self.taken or spelled in self.program.dims:
                count += 1
                spelled = f"{base}_{count}"
            self.taken.add(spelled)
            self.names[tensor] = spelled
        return self.names[tensor]

    def _head(self) -> str:
        found = self._found()
        free = [d for d in self.program.dims if d not in found]
        free += [] if self.program.inputs else ["device"]
        given = [*map(self.name, self.program.inputs), "constants", *(["*", *free] if free else [])]
        return f"def run({', '.join(given)}):"

    def _found(self) -> dict[str, str]:
        """Named dimensions that shapes of inputs give."""
        return {
            extent.name: f"{self.name(tensor)}.shape[{d}]"
            for tensor in reversed(self.program.inputs)
            for d, extent in enumerate(self.types[tensor].shape)
            if isinstance(extent, Sym)
        }

    def _begin(self) -> Iterator[str]:
        shown = ", ".join(f"{self.name(n)}: {self.types[n]}" for n in self.program.inputs)
        results = ", ".join(f"{user_name(n)}: {self.types[n]}" for n in self.program.outputs)
        yield f'"""{shown} -> {results}"""'
        yield from (f"{name} = {text}" for name, text in self._found().items())
        first = self.program.inputs[0] if self.program.inputs else ""
        if first:
            yield f"device = {self.name(first)}.device"
        for tensor in self.program.inputs:
            own, type_ = self.name(tensor), self.types[tensor]
            shape = _shape(type_.shape)
            yield f'{own} = check({own}, "{own}", {shape}, {torch_type(type_.dtype)})'

    def _lasting(self) -> set[str]:
        return {*self.program.outputs, *self.program.inputs, *self.program.constants}

    def _value(self, tensor: str) -> str:
        if tensor in self.program.constants:
            return f"constants[{tensor!r}]"
        return self.name(tensor)

    def _result(self) -> str:
        return f"return ({', '.join(map(self._value, self.program.outputs))},)"

    def _step(self, item: Item) -> Iterator[str]:
        match item:
            case View():
                shape = _shape(self.types[item.output].shape)
                yield f"{self.name(item.output)} = {self._value(item.input)}.view({shape})"
            case Kernel():
                for kernel in self._lowered(item):
                    yield from self._launch(kernel, self._named(kernel))
            case Scatter():
                yield f"{self.name(item.stage.output)} = {self._value(item.initial)}.clone()"
                read = tuple(dict.fromkeys(r.tensor for r in reads(item.stage.body)))
                kernel = Kernel("updates", read, item.outputs, (item.stage,), item.source)
                yield from self._launch(kernel, self._named(kernel, (updates_kernel,)))
            case _:
                what = type(item).__name__
                message = f"Triton's programs of blocks have no form of {what}"
                hint = "compile for a target that computes it: modelcc targets lists them"
                raise ModelError(message, item.source, hint)

    def _lowered(self, kernel: Kernel) -> Iterator[Kernel]:
        """The kernel, or one for each of its stages if no kind takes it whole."""
        if self._named(kernel):
            yield kernel
            return
        parts = _apart(kernel) if len(kernel.stages) > 1 else ()
        for stage in kernel.stages:
            plain = TensorType(tuple(a.extent for a in stage.axes), stage.body.dtype)
            self.types.setdefault(stage.output, plain)
        if not parts or not all(map(self._named, parts)):
            raise ModelError("no kernel in Triton fits it", (*kernel.source, kernel.name))
        yield from parts

    def _named(self, kernel: Kernel, kinds: Sequence[Kind] = KINDS) -> NamedKernel | None:
        if any(name not in self.types for name in (*kernel.inputs, *kernel.outputs)):
            return None
        constants = frozenset[str]()
        key, _ = canonical(kernel, self.types, constants, self.program.dims)
        if key not in self.kernels:
            made = self._made(kernel, key, kinds)
            if made is None:
                return None
            base = re.sub(r"\W+", "_", kernel.name).strip("_").lower() or "kernel"
            name = f"{base}_{len(self.kernels)}"
            self.kernels[key] = NamedKernel(name, key, made, kernel.source)
        return self.kernels[key]

    def _made(
        self, kernel: Kernel, key: CanonicalKernel, kinds: Sequence[Kind]
    ) -> TritonKernel | None:
        try:
            found = (make(key) for make in kinds)
            return next((one for one in found if one is not None), None)
        except (NotImplementedError, TypeError) as error:
            raise ModelError(str(error), (*kernel.source, kernel.name)) from error

    def _launch(self, kernel: Kernel, named: NamedKernel | None) -> Iterator[str]:
        assert named is not None
        for output in kernel.outputs:
            if output not in self.names:
                type_ = self.types[output]
                shape, dtype = _shape(type_.shape), torch_type(type_.dtype)
                own = self.name(output)
                yield f"{own} = torch.empty({shape}, dtype={dtype}, device=device)"
        tensors = map(self._value, (*kernel.inputs, *kernel.outputs))
        yield f"launch_{named.name}({', '.join([*tensors, *named.sizes])})"


def _apart(kernel: Kernel) -> tuple[Kernel, ...]:
    """A kernel for each stage, with intermediate results in memory."""
    return tuple(
        replace(
            kernel,
            name=f"{kernel.name}_{number}",
            inputs=tuple(dict.fromkeys(r.tensor for r in reads(stage.body))),
            outputs=(stage.output,),
            stages=(stage,),
        )
        for number, stage in enumerate(kernel.stages)
    )


def _with_ends(
    steps: Sequence[tuple[Item, str]], lasting: set[str], names: Mapping[str, str]
) -> list[str]:
    """Steps, and after each one the deletion of what no later one reads."""
    last: dict[str, int] = {}
    for number, (item, _) in enumerate(steps):
        for tensor in (*item_inputs(item), *item_outputs(item)):
            last[tensor] = number
    ends: dict[int, list[str]] = {}
    for tensor, number in last.items():
        if tensor not in lasting and tensor in names:
            ends.setdefault(number, []).append(names[tensor])
    found: list[str] = []
    for number, (_, text) in enumerate(steps):
        found.append(text)
        found += [f"del {', '.join(ends[number])}"] if number in ends else []
    return found


def _key(program: TensorProgram, name: str) -> str:
    constant = program.constants[name]
    return f"{constant.digest}.{dtype_of(constant.data)}"


def _shape(shape: Sequence[Index]) -> str:
    names = {n: n for e in shape for n in symbols(e)}
    return f"({''.join(f'{python_source(e, names)}, ' for e in shape)})".replace(", )", ",)")


def _configs_name(kernel: TritonKernel) -> str:
    return f"{kernel.kind.upper()}_CONFIGS"


def _configs_text(kernel: TritonKernel) -> str:
    return "\n".join([f"{_configs_name(kernel)} = [", *map(_config_text, kernel.configs), "]"])


def _config_text(config: Config) -> str:
    blocks = ", ".join(f'"{n}": {v}' for n, v in config if n.startswith("BLOCK"))
    others = ", ".join(f"{n}={v}" for n, v in config if not n.startswith("BLOCK"))
    return f"    triton.Config({{{blocks}}}, {others}),"


def _kernel_text(named: NamedKernel) -> str:
    kernel = named.kernel
    parameters = [*named.tensors, *named.sizes, *(f"{n}: tl.constexpr" for n in named.constexprs)]
    jit = "@triton.jit(debug=True)" if kernel.checked else "@triton.jit"
    tuned: list[str] = []
    if kernel.configs:
        key = ", ".join(f'"{name}"' for name in kernel.key)
        tuned = [f"@triton.autotune(configs=chosen({_configs_name(kernel)}), key=[{key}])"]
    nodes = ", ".join(named.source).replace("\\", "/").replace('"', "'")
    head = f"def {named.name}({', '.join(parameters)}):"
    about = f'    """{nodes}"""' if nodes else f'    """{kernel.kind}"""'
    return "\n".join([*tuned, jit, head, about, *kernel.lines])


def _launcher(named: NamedKernel) -> str:
    kernel = named.kernel
    parameters = ", ".join([*named.tensors, *named.sizes])
    types = dict(named.canonical.types)
    shown = ", ".join(f"{name}: {types[name]}" for name in named.tensors)
    grid = f"({', '.join(kernel.grid)},)"
    blocks = "".join(f", {name}={text}" for name, text in kernel.blocks)
    before = "lambda meta: " if kernel.configs else ""
    return "\n".join(
        [
            f"def launch_{named.name}({parameters}):",
            f'    """{shown}"""',
            f"    grid = {before}{grid}",
            f"    {named.name}[grid]({parameters}{blocks})",
        ]
    )
