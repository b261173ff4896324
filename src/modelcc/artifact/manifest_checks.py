"""Consistency checks of a manifest that was read: references are valid, and sizes fit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise
from math import prod

from modelcc.artifact.manifest import ALIGNMENT, ConstantSpec, Manifest
from modelcc.ir.index import Index, symbols
from modelcc.ir.structure import Interface, leaves_of
from modelcc.ir.types import STRING


class ManifestError(ValueError):
    """Text that is no manifest, or one of another format version."""


def check_manifest(manifest: Manifest) -> None:
    """Raise ManifestError with a reason if parts are inconsistent.

    The behaviour of compiled code is unknown here: the arena's size, the shapes and the order of
    constants are as trusted as the code.
    """
    for problem in _problems(manifest):
        raise ManifestError(f"its manifest is damaged ({problem})")


def _problems(manifest: Manifest) -> Iterator[str]:
    if manifest.format < 1 or not manifest.entry:
        yield "it has no entry point"
    yield from _name_problems(manifest)
    yield from _size_problems(manifest)
    yield from _constant_problems(manifest.constants)
    yield from _interface_problems(manifest)
    yield from _alias_problems(manifest)


def _name_problems(manifest: Manifest) -> Iterator[str]:
    dims = (*(dim.name for dim in manifest.dims), *manifest.sizes)
    groups = {
        "input": [spec.name for spec in manifest.inputs],
        "output": [spec.name for spec in manifest.outputs],
        "dimension": [*dims, *(name for name, _ in manifest.definitions)],
        "constant": [spec.name for spec in manifest.constants],
        "object": manifest.objects,
        "memory": manifest.allocated,
    }
    for kind, names in groups.items():
        for name, count in Counter(names).items():
            if count > 1:
                yield f"{kind} {name!r} occurs twice"
    for name in manifest.objects:
        if not name or "/" in name or "\0" in name:
            yield f"object {name!r} has no name of a file"


def _size_problems(manifest: Manifest) -> Iterator[str]:
    for dim in manifest.dims:
        if dim.low < 0 or (dim.high is not None and dim.high < dim.low):
            yield f"dimension {dim.name!r} is from {dim.low} to {dim.high}"
    known = {dim.name for dim in manifest.dims}
    for spec in manifest.inputs:
        yield from _unknown(f"input {spec.name!r}", spec.shape, known)
    known |= set(manifest.sizes)
    for name, value in manifest.definitions:
        yield from _unknown(f"definition {name!r}", [value], known)
        known.add(name)
    for spec in manifest.outputs:
        yield from _unknown(f"output {spec.name!r}", spec.shape, known)
    yield from _unknown("the arena", [manifest.arena], known)


def _unknown(what: str, indices: Iterable[Index], known: set[str]) -> Iterator[str]:
    for index in indices:
        if isinstance(index, int) and index < 0:
            yield f"{what} has size {index}"
        for name in sorted(symbols(index) - known):
            yield f"{what} depends on {name!r}, which nothing tells"


def _constant_problems(specs: tuple[ConstantSpec, ...]) -> Iterator[str]:
    for spec in specs:
        if spec.dtype == STRING or min(spec.shape, default=0) < 0:
            yield f"constant {spec.name!r} is {spec.dtype}{list(spec.shape)}"
        elif spec.size != prod(spec.shape) * spec.dtype.numpy.itemsize:
            yield f"constant {spec.name!r} has {spec.size} bytes for {list(spec.shape)}"
        elif spec.offset < 0 or spec.offset % ALIGNMENT:
            yield f"constant {spec.name!r} lies at {spec.offset}"
    places = sorted({(spec.offset, spec.size, spec.sha256) for spec in specs if spec.size})
    for (start, size, _), (after, _, _) in pairwise(places):
        if start + size > after:
            yield f"constants at {start} and {after} overlap"


def _interface_problems(manifest: Manifest) -> Iterator[str]:
    interface = manifest.interface
    if interface is None:
        return
    results = [name for step in interface.steps for name in step.outputs]
    given = {leaf for s in interface.inputs.values() for leaf in leaves_of(s)}
    made = {spec.name for spec in manifest.outputs}
    kept = {state.input for state in interface.states.values()}
    for spec in manifest.inputs:
        if spec.name not in given and spec.name not in results and spec.name not in kept:
            yield f"nothing gives input {spec.name!r}"
    yield from _state_problems(manifest, interface)
    yield from _form_problems(interface)
    for name in {leaf for s in interface.outputs.values() for leaf in leaves_of(s)} - made:
        yield f"nothing makes {name!r}"
    for step in interface.steps:
        for name in step.inputs:
            if name not in given and name not in results:
                yield f"nothing gives {name!r} to {step.function!r}"


def _form_problems(interface: Interface) -> Iterator[str]:
    form = interface.call
    if form is not None and form.inputs != tuple(interface.inputs):
        yield "the form of a call has other inputs than the model"
    if form is not None and form.outputs != tuple(interface.outputs):
        yield "the form of a call has other outputs than the model"


def _state_problems(manifest: Manifest, interface: Interface) -> Iterator[str]:
    before = {spec.name: spec for spec in manifest.inputs}
    after = {spec.name: spec for spec in manifest.outputs}
    for name, state in interface.states.items():
        old, new = before.get(state.input), after.get(state.output)
        if old is None or new is None or (old.dtype, old.shape) != (new.dtype, new.shape):
            yield f"state {name!r} is no input and output of one type"
        elif any(not isinstance(extent, int) for extent in old.shape):
            yield f"state {name!r} has no fixed size"


def _alias_problems(manifest: Manifest) -> Iterator[str]:
    before = {spec.name: spec for spec in manifest.inputs}
    after = {spec.name: spec for spec in manifest.outputs}
    for output, taken in manifest.aliases.items():
        old, new = before.get(taken), after.get(output)
        if old is None or new is None or (old.dtype, old.shape) != (new.dtype, new.shape):
            yield f"output {output!r} cannot be where input {taken!r} is"
    for name, count in Counter(manifest.aliases.values()).items():
        if count > 1:
            yield f"several outputs are where input {name!r} is"
    for name, state in manifest.states.items():
        if manifest.aliases.get(state.output) != state.input:
            yield f"state {name!r} is not changed in its place, as in files of older versions"
