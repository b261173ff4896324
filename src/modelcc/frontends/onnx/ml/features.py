"""Handlers of ai.onnx.ml's preprocessing of features and postprocessing of labels."""

from __future__ import annotations

import numpy as np

from modelcc.frontends.kit.errors import unsupported
from modelcc.frontends.kit.groups import RecordsValue
from modelcc.frontends.kit.parts import joined
from modelcc.frontends.onnx.call import Call, table
from modelcc.ir.types import BOOL, F32, F64, I64, STRING, Array, DType, dtype_of
from modelcc.ops import elementwise as ew
from modelcc.ops import reduce as rd
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.comparison import above, where
from modelcc.ops.gather import Gather
from modelcc.ops.shape import Reshape
from modelcc.ops.views import cast


def _constants(call: Call, name: str, default: float) -> Array:
    return np.array(call.attrs.numbers(name, (default,)), np.float32)


def scaler(call: Call) -> str:
    """``(x - offset) * scale``; the result is f32."""
    x = cast(call.value(0), F32)
    offset, scale = _constants(call, "offset", 0.0), _constants(call, "scale", 1.0)
    return ((x - call.literal(offset)) * call.literal(scale)).name


def binarizer(call: Call) -> str:
    """1 above the threshold, else 0."""
    positive = above(call.value(0), call.attrs.number("threshold", 0.0))
    return of(ew.Cast(call.dtype()), positive).name


def normalizer(call: Call) -> str:
    """Rows divided by their norm; zero rows are unchanged.  MAX is the largest element."""
    x, axes = cast(call.value(0), F32), (call.rank() - 1,)
    kinds = {"MAX": rd.ReduceMax, "L1": rd.ReduceL1, "L2": rd.ReduceL2}
    size = of(kinds[call.option("norm", tuple(kinds), "MAX")](axes, True), x)
    return (x / where(of(ew.Equal(), size, size.lift(0.0)), 1.0, size)).name


def imputer(call: Call) -> str:
    """Elements equal to the replaced value (NaN: missing ones) become the imputed value of their
    column."""
    x, dtype = call.input(0), call.dtype()
    if dtype.is_float:
        values = np.array(call.attrs.numbers("imputed_value_floats"), dtype.numpy)
        replaced = call.attrs.number("replaced_value_float", 0.0)
    else:
        values = np.array(call.attrs.integers("imputed_value_int64s"), dtype.numpy)
        replaced = float(call.attrs.integer("replaced_value_int64", 0))
    if np.isnan(replaced):
        missing = call.emit(ew.IsNaN(), x)
    else:
        missing = call.emit(ew.Equal(), x, call.constant(np.array(replaced, dtype.numpy)))
    return call.emit(ew.Where(), missing, call.constant(values), x)


def one_hot(call: Call) -> str:
    """A new last axis with 1.0 at the element's category; unknown ones are all zeros, or fail the
    run."""
    strings = call.dtype() == STRING
    names = call.attrs.texts("cats_strings", ()) if strings else call.attrs.integers("cats_int64s")
    keys = np.array(names, (call.dtype() if strings else I64).numpy)
    x = call.input(0) if strings else cast(call.value(0), I64).name
    column = call.emit(Reshape((*call.shape(), 1)), x)
    found = call.emit(ew.Equal(), column, call.constant(keys))
    flags = call.emit(ew.Cast(F32), found)
    return flags if call.attrs.flag("zeros", True) else _known_only(call, flags, len(keys))


def _known_only(call: Call, flags: str, categories: int) -> str:
    """``flags`` of the categories, looked up so that an unknown element is out of range."""
    last = call.type_of(flags).rank - 1
    place = call.emit(rd.ArgMax(last, False), flags)
    known = call.emit(ew.Cast(BOOL), call.emit(rd.ReduceMax((last,), False), flags))
    index = call.emit(ew.Where(), known, place, call.constant(categories, I64))
    table = call.emitter.note(np.eye(categories, dtype=np.float32), F32, "known categories")
    return call.emit(Gather(0), table, index)


def feature_vectorizer(call: Call) -> str:
    """All operands' columns concatenated, as f32."""
    sizes = call.attrs.integers("inputdimensions", ())
    parts: list[str] = []
    for i, name in enumerate(call.inputs):
        rows = call.shape(i) if call.rank(i) == 2 else (1, *call.shape(i))
        if i < len(sizes) and isinstance(rows[1], int) and rows[1] != sizes[i]:
            unsupported(f"operand {i} has {rows[1]} columns where {sizes[i]} are told")
        part = cast(Value(call, name), F32).name
        parts.append(part if call.rank(i) == 2 else call.emit(Reshape(rows), part))
    return joined(call, 1, parts)


def array_features(call: Call) -> str:
    """Elements of the last axis at the indices of operand 1; a vector is one row."""
    axis = call.rank() - 1
    x = call.input(0) if axis else call.emit(Reshape((1, *call.shape())), call.input(0))
    flat = call.emit(Reshape((call.type(1).elements,)), call.input(1))
    return call.emit(Gather(axis or 1), x, flat)


def _attribute(call: Call, stem: str) -> Array | None:
    """``<stem>_floats``, ``_int64s``, ``_strings`` or ``_tensor``, whichever is set."""
    attrs = call.attrs
    if attrs.has(f"{stem}_tensor"):
        return attrs.tensor(f"{stem}_tensor").reshape(-1)
    if attrs.has(f"{stem}_strings"):
        return np.array(attrs.texts(f"{stem}_strings"), object)
    if attrs.has(f"{stem}_int64s"):
        return np.array(attrs.integers(f"{stem}_int64s"), np.int64)
    if attrs.has(f"{stem}_floats"):
        return np.array(attrs.numbers(f"{stem}_floats"), np.float32)
    return None


def _default(call: Call, dtype: DType) -> Array:
    """The value of unknown keys; the standard's default if the node has none."""
    attrs = call.attrs
    if attrs.has("default_tensor"):
        return attrs.tensor("default_tensor").reshape(1)
    if dtype == STRING:
        return np.array([attrs.text("default_string", "_Unused")], object)
    if dtype == I64:
        return np.array([attrs.integer("default_int64", -1)], np.int64)
    return np.array([attrs.number("default_float", 0.0)], dtype.numpy)


def label_encoder(call: Call) -> str:
    """The value of each key."""
    if call.opset < 2:
        names = call.attrs.texts("classes_strings")
        return _either_way(call, names, np.arange(len(names), dtype=np.int64))
    keys, values = _attribute(call, "keys"), _attribute(call, "values")
    if keys is None or values is None or len(keys) != len(values):
        call.fail("it needs as many keys as values")
    return looked_up(call, keys, np.concatenate([values, _default(call, dtype_of(values))]))


def category_mapper(call: Call) -> str:
    """From a category's string to its number or back."""
    numbers = np.array(call.attrs.integers("cats_int64s"), np.int64)
    return _either_way(call, call.attrs.texts("cats_strings"), numbers)


def _either_way(call: Call, texts: tuple[str, ...], numbers: Array) -> str:
    """The number of a string, or the string of a number."""
    names = np.array(texts, object)
    if call.dtype() == STRING:
        return looked_up(call, names, np.concatenate([numbers, _default(call, I64)]))
    return looked_up(call, numbers, np.concatenate([names, _default(call, STRING)]))


def looked_up(call: Call, keys: Array, values: Array) -> str:
    """``values[i]`` where ``keys[i]`` is the element, else the last of ``values``.

    The last of duplicate keys is used.  NaN matches NaN.
    """
    x, count = call.input(0), len(keys)
    column = call.emit(Reshape((*call.shape(), 1)), x)
    known = call.constant(keys.astype(call.dtype().numpy))
    same = call.emit(ew.Equal(), column, known)
    if call.dtype() in (F32, F64) and np.isnan(keys.astype(np.float64)).any():
        both = (call.emit(ew.IsNaN(), column), call.emit(ew.IsNaN(), known))
        same = call.emit(ew.Or(), same, call.emit(ew.And(), *both))
    places = call.constant(np.arange(1, count + 1, dtype=np.int64))
    found = call.emit(ew.Where(), same, places, call.constant(np.array(0, np.int64)))
    place = call.emit(rd.ReduceMax((call.rank(),), False), found)
    table = np.concatenate([values[-1:], values[:-1]])
    return call.emit(Gather(0), call.constant(table), place)


def zip_map(call: Call) -> str:
    """Rows of scores as maps with the classes as keys."""
    attrs = call.attrs
    ints = attrs.integers("classlabels_int64s", ())
    keys: tuple[str | int, ...] = ints or attrs.texts("classlabels_strings", ())
    rows = call.input(0) if call.rank() == 2 else call.emit(Reshape((1, *call.shape())),
                                                            call.input(0))  # fmt: skip
    if call.type_of(rows).shape[1] != len(keys):
        call.fail(f"it has {len(keys)} classes for {call.type()}")
    return call.group(RecordsValue(keys, rows))


ML_FEATURES = table(
    Scaler=scaler,
    Binarizer=binarizer,
    Normalizer=normalizer,
    Imputer=imputer,
    OneHotEncoder=one_hot,
    FeatureVectorizer=feature_vectorizer,
    ArrayFeatureExtractor=array_features,
    LabelEncoder=label_encoder,
    CategoryMapper=category_mapper,
    ZipMap=zip_map,
)
