"""Manifests as JSON text; symbolic extents and offsets are index expressions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from itertools import accumulate
from typing import cast

from modelcc.artifact.json_values import (
    is_list,
    is_object,
    list_of,
    object_of,
    parsed_object,
    whole_number_of,
)
from modelcc.artifact.manifest import (
    FORMAT,
    CheckSpec,
    ConstantSpec,
    DimSpec,
    LibrarySpec,
    MachineSpec,
    Manifest,
    TensorSpec,
)
from modelcc.artifact.manifest_checks import ManifestError, check_manifest
from modelcc.ir.call_form import decoded_call, encoded_call
from modelcc.ir.condition import COMPARISONS, Condition
from modelcc.ir.index import Index, parse_index
from modelcc.ir.index_bound import IndexBound
from modelcc.ir.index_expr import Expr
from modelcc.ir.structure import HostStep, Interface, ModelState, Records, Setting, Structure
from modelcc.ir.types import DTYPES, DType

Object = Mapping[str, object]

_PARENTHESES, _LETTERS = 80, 20_000
"""Limits of an index expression, nesting and length: Python, which evaluates them, nests less than
a hundred parentheses."""


def manifest_to_json(manifest: Manifest) -> str:
    """Deterministic JSON text."""
    return json.dumps(_data(manifest), indent=1, ensure_ascii=False) + "\n"


def _data(manifest: Manifest) -> Object:
    data: dict[str, object] = {
        "format": manifest.format,
        "name": manifest.name,
        "entry": manifest.entry,
        "inputs": _plain(manifest.inputs),
        "outputs": _plain(manifest.outputs),
        "dims": _plain(manifest.dims),
        "definitions": [{"symbol": s, "value": _plain(v)} for s, v in manifest.definitions],
        "arena": _plain(manifest.arena),
        "sizes": _plain(manifest.sizes),
        "checks": [_check(spec) for spec in manifest.checks],
        "allocated": _plain(manifest.allocated),
        "indices": [_bound(bound) for bound in manifest.indices],
        "machine": _plain(manifest.machine),
        "objects": _plain(manifest.objects),
        "constants": _plain(manifest.constants),
        "options": manifest.options,
        "versions": dict(sorted(manifest.versions.items())),
    }
    if manifest.libraries:
        data["libraries"] = [_library(spec) for spec in manifest.libraries]
    if manifest.aliases:
        data["aliases"] = dict(manifest.aliases)
    if manifest.interface is not None:
        data["interface"] = _interface(manifest.interface)
    return data


def _interface(interface: Interface) -> Object:
    """Omits states and call form if there are none, as in files of older versions."""
    parts = ((f.name, getattr(interface, f.name)) for f in fields(interface) if f.name != "call")
    found = {name: _plain(part) for name, part in parts if part or name != "states"}
    if interface.call is not None:
        found["call"] = _plain(encoded_call(interface.call))
    return found


def manifest_from_json(text: str) -> Manifest:
    """The inverse of :func:`manifest_to_json`; ManifestError if the text is invalid.

    The manifest is consistent: see :func:`check_manifest`.  The text has no other contents:
    serialising the manifest again gives the same text.
    """
    try:
        data = parsed_object(text)
        version = whole_number_of(data["format"])
    except (*_UNREADABLE,) as error:
        raise ManifestError("it has no readable manifest") from error
    if version != FORMAT:
        raise ManifestError(
            f"its format is version {version}, and this modelcc reads version {FORMAT}"
        )
    try:
        manifest = _manifest(data)
        check_manifest(manifest)
        changed = _first_difference(data, _data(manifest))
    except (*_UNREADABLE,) as error:
        raise ManifestError(f"its manifest is damaged ({_reason(error)})") from error
    if changed:
        raise ManifestError(f"its manifest is damaged ({changed} is not as modelcc writes it)")
    return manifest


_UNREADABLE = (ValueError, LookupError, TypeError, AttributeError, SyntaxError, ArithmeticError,
               RecursionError)  # fmt: skip
"""Exceptions from reading malformed JSON or index expressions."""


def _reason(error: Exception) -> str:
    return f"there is no {error}" if isinstance(error, KeyError) else str(error)


def _first_difference(read: Object, written: Object) -> str:
    """The first part of a manifest that does not round-trip."""
    if json.dumps(read) == json.dumps(written):
        return ""
    for key, value in written.items():
        if json.dumps(read.get(key)) != json.dumps(value):
            return repr(key)
    return repr(next((key for key in read if key not in written), "its order"))


def _manifest(data: Object) -> Manifest:
    return Manifest(
        name=str(data["name"]),
        entry=str(data["entry"]),
        inputs=list_of(data["inputs"], _read_tensor),
        outputs=list_of(data["outputs"], _read_tensor),
        machine=_read_machine(data["machine"]),
        dims=list_of(data["dims"], _read_dim),
        definitions=list_of(data["definitions"], _read_definition),
        arena=_read_index(data["arena"]),
        constants=list_of(data["constants"], _read_constant),
        objects=_texts(data["objects"]),
        sizes=_texts(data["sizes"]),
        checks=list_of(data["checks"], _read_check),
        allocated=_texts(data["allocated"]),
        indices=list_of(data.get("indices", []), _read_bound),
        libraries=list_of(data.get("libraries", []), _read_library),
        options=str(data["options"]),
        versions={k: str(v) for k, v in object_of(data["versions"]).items()},
        interface=_read_interface(data["interface"]) if "interface" in data else None,
        aliases={n: str(v) for n, v in object_of(data.get("aliases", {})).items()},
    )


def _plain(value: object) -> object:
    """A value as JSON: fields by name, symbolic extents as text."""
    match value:
        case Expr():
            return str(value)
        case DType():
            return value.name
        case tuple():
            return [_plain(item) for item in cast("tuple[object, ...]", value)]
        case Mapping():
            items = cast("Mapping[str, object]", value).items()
            return {name: _plain(item) for name, item in items}
        case _ if is_dataclass(value):
            return {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
        case _:
            return value


def _read_definition(value: object) -> tuple[str, Index]:
    data = object_of(value)
    return str(data["symbol"]), _read_index(data["value"])


def _bound(bound: IndexBound) -> Object:
    """Without its number, which is unique only in a kernel."""
    return {f.name: _plain(getattr(bound, f.name)) for f in fields(bound) if f.name != "number"}


def _read_bound(value: object) -> IndexBound:
    data = object_of(value)
    extent, source = _read_index(data["extent"]), _texts(data["source"])
    return IndexBound(extent, str(data["what"]), str(data["noun"]), bool(data["wrapped"]), source)


def _check(spec: CheckSpec) -> Object:
    condition = spec.condition
    sides = {"left": _plain(condition.left), "right": _plain(condition.right)}
    return {"where": spec.where, "comparison": condition.comparison, **sides}


def _read_check(value: object) -> CheckSpec:
    data = object_of(value)
    comparison = COMPARISONS[str(data["comparison"])]
    left, right = _read_index(data["left"]), _read_index(data["right"])
    return CheckSpec(str(data["where"]), Condition(left, comparison, right))


def _library(spec: LibrarySpec) -> Object:
    return {
        "name": spec.name,
        "version": spec.version,
        "package": spec.package,
        "files": list(spec.files),
        "prefixes": list(spec.prefixes),
        "symbols": list(spec.symbols),
        "setup": dict(spec.setup),
    }


def _read_library(value: object) -> LibrarySpec:
    data = object_of(value)
    setup = tuple((n, whole_number_of(v)) for n, v in object_of(data["setup"]).items())
    files, prefixes, symbols = (_texts(data[key]) for key in ("files", "prefixes", "symbols"))
    name, package, version = (str(data[key]) for key in ("name", "package", "version"))
    return LibrarySpec(name, files, prefixes, symbols, setup, package, version)


def _texts(items: object) -> tuple[str, ...]:
    return list_of(items, str)


def _read_index(value: object) -> Index:
    if not isinstance(value, str):
        return whole_number_of(value)
    nested = value.count("(") > _PARENTHESES and _nesting(value) > _PARENTHESES
    if nested or len(value) > _LETTERS:
        raise ValueError("an index expression is longer than any of modelcc's")
    return parse_index(value)


def _nesting(text: str) -> int:
    """Nesting depth of parentheses."""
    return max(accumulate((letter == "(") - (letter == ")") for letter in text), default=0)


def _read_dtype(name: object) -> DType:
    return DTYPES[str(name)]


def _read_tensor(value: object) -> TensorSpec:
    data = object_of(value)
    shape = list_of(data["shape"], _read_index)
    return TensorSpec(str(data["name"]), _read_dtype(data["dtype"]), shape)


def _read_interface(value: object) -> Interface:
    data = object_of(value)
    inputs, outputs = (
        {name: _read_structure(s) for name, s in object_of(data[side]).items()}
        for side in ("inputs", "outputs")
    )
    strings, texts = _texts(data["strings"]), _texts(data["texts"])
    steps = list_of(data["steps"], _read_step)
    states = {n: _read_state(s) for n, s in object_of(data.get("states", {})).items()}
    call = decoded_call(data["call"]) if "call" in data else None
    return Interface(inputs, outputs, strings, texts, steps, states, call)


def _read_state(value: object) -> ModelState:
    data = object_of(value)
    return ModelState(str(data["input"]), str(data["output"]), bool(data["given"]))


def _read_step(value: object) -> HostStep:
    data = object_of(value)
    inputs, outputs = _texts(data["inputs"]), _texts(data["outputs"])
    settings = {name: _read_setting(s) for name, s in object_of(data["settings"]).items()}
    return HostStep(str(data["function"]), inputs, outputs, settings)


def _read_setting(value: object) -> Setting:
    if isinstance(value, str | int | float):
        return value
    return list_of(value, _read_setting)


def _read_structure(data: object) -> Structure:
    if is_object(data):
        return Records(list_of(data["keys"], _read_key), str(data["tensor"]))
    if is_list(data):
        return list_of(data, _read_structure)
    return None if data is None else str(data)


def _read_key(key: object) -> str | int:
    return key if isinstance(key, str) else whole_number_of(key)


def _read_dim(value: object) -> DimSpec:
    data = object_of(value)
    low, high = whole_number_of(data["low"]), data["high"]
    return DimSpec(str(data["name"]), low, None if high is None else whole_number_of(high))


def _read_constant(value: object) -> ConstantSpec:
    data = object_of(value)
    shape = list_of(data["shape"], whole_number_of)
    offset, size = whole_number_of(data["offset"]), whole_number_of(data["size"])
    dtype = _read_dtype(data["dtype"])
    return ConstantSpec(str(data["name"]), dtype, shape, offset, size, str(data["sha256"]))


def _read_machine(value: object) -> MachineSpec:
    data = object_of(value)
    features = _texts(data["features"])
    origin = str(data.get("origin", ""))
    return MachineSpec(str(data["triple"]), str(data["cpu"]), features, origin)
