"""Reading tensor programs from text; see :mod:`modelcc.ir.tensor_text` for the form."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, TypeVar, cast, get_args

from modelcc.ir.constant import Constant
from modelcc.ir.errors import ModelError
from modelcc.ir.graph_parser import Resolve, resolver
from modelcc.ir.index import Index, Range, Sym
from modelcc.ir.index_bound_text import parse_bound
from modelcc.ir.loop_parser import FunctionParser, LoopScanner
from modelcc.ir.mlir_syntax import string_value, value_name
from modelcc.ir.region import Branch, Carry, Repeat
from modelcc.ir.rounding_text import parse_rounding
from modelcc.ir.scalar import COMBINE_FUNCTION, FUNCTIONS, Combine
from modelcc.ir.tensor import (
    Algorithm,
    Apply,
    Axis,
    Bind,
    Bitcast,
    Cast,
    Comparison,
    Condition,
    Guard,
    IndexValue,
    Item,
    Kernel,
    Linear,
    Number,
    Read,
    ReadSize,
    Scalar,
    Scatter,
    Select,
    Stage,
    TensorProgram,
    View,
)
from modelcc.ir.types import BOOL, DTYPES, F32, I64, DType, TensorType

T = TypeVar("T")

_COMPARISONS: Final = ("<=", ">=", "==", "!=", "<", ">")
_LEVELS: Final = (
    {"<=": "le", ">=": "ge", "==": "eq", "!=": "ne", "<": "lt", ">": "gt"},
    {"+": "add", "-": "sub"},
    {"*": "mul", "/": "div"},
)
_SPECIAL: Final = MappingProxyType({"inf": math.inf, "-inf": -math.inf, "nan": math.nan})


def parse_tensor_program(text: str, constants: Mapping[str, Constant] | Resolve) -> TensorProgram:
    """The program that ``text`` spells: the inverse of ``print_tensor_program``.

    ``constants`` finds constants from their digest.  :class:`ModelError` with line and column if
    the text is malformed.  Does not verify: see ``verify_tensor_program``.
    """
    parser = _TensorParser(LoopScanner(text))
    program = parser.program(resolver(constants))
    parser.end()
    return program


def parse_kernel(text: str) -> tuple[Kernel, Mapping[str, TensorType]]:
    """One kernel and the types of its tensors: the inverse of ``print_kernel``."""
    parser = _TensorParser(LoopScanner(text))
    parser.at.expect("kernel")
    kernel = parser.kernel()
    parser.end()
    return kernel, MappingProxyType(parser.types)


class _TensorParser:
    def __init__(self, at: LoopScanner) -> None:
        self.at = at
        self.types: dict[str, TensorType] = {}

    def end(self) -> None:
        if self.at.end != len(self.at.text):
            raise self.at.error("expected the end of the text")

    def program(self, resolve: Resolve) -> TensorProgram:
        at = self.at
        at.expect("program")
        name = self._symbol()
        inputs = self._list("(", ")", self._typed)
        at.expect("->")
        outputs = self._list("(", ")", self._value)
        dims = dict(self._list("(", ")", self._dim)) if at.accept("dims") else {}
        at.expect("{")
        constants: dict[str, Constant] = {}
        items: list[Item] = []
        while not at.accept("}"):
            word = at.key()
            if word == "constant":
                key, constant = self._constant(resolve)
                constants[key] = constant
            else:
                items.append(self._item(word))
        return TensorProgram(
            name,
            inputs,
            outputs,
            tuple(items),
            MappingProxyType(self.types),
            MappingProxyType(constants),
            MappingProxyType(dims),
        )

    def _item(self, word: str) -> Item:
        match word:
            case "kernel":
                return self.kernel()
            case "view":
                return self._view()
            case "scatter":
                return self._scatter()
            case "algorithm":
                return self._algorithm()
            case "read":
                return self._read_size()
            case "if":
                return self._branch()
            case "repeat":
                return self._repeat()
            case _:
                known = "constant, kernel, view, scatter, algorithm, read, if or repeat"
                raise self.at.error(f"expected {known} after {word!r}")

    def _items(self) -> tuple[Item, ...]:
        self.at.expect("{")
        items: list[Item] = []
        while not self.at.accept("}"):
            items.append(self._item(self.at.key()))
        return tuple(items)

    def _branch(self) -> Branch[Item]:
        condition = self._value()
        self.at.expect("->")
        outputs = self._list("(", ")", self._typed)
        source = self._source()
        then = self._items()
        self.at.expect("else")
        return Branch(condition, outputs, then, self._items(), source)

    def _repeat(self) -> Repeat[Item]:
        at = self.at
        at.expect("[")
        counter = self._name()
        trips = at.bare_index() if at.accept("<") else None
        at.expect("]")
        condition = self._value() if at.accept("while") else None
        carries = self._list("(", ")", self._carry) if at.accept("carry") else ()
        filled = self._list("(", ")", self._typed) if at.accept("fill") else ()
        source = self._source()
        return Repeat(counter, trips, carries, filled, self._items(), condition, source)

    def _carry(self) -> Carry:
        state = self._typed()
        self.at.expect("=")
        initial = self._value()
        self.at.expect("then")
        following = self._value()
        self.at.expect("last")
        last = self._value()
        for name in (following, last):
            self.types.setdefault(name, self.types[state])
        return Carry(state, initial, following, last)

    def kernel(self) -> Kernel:
        """A kernel whose keyword has been read."""
        at = self.at
        name = self._symbol()
        inputs = self._list("(", ")", self._typed)
        at.expect("->")
        outputs = self._list("(", ")", self._typed)
        source, rounding = self._source(), parse_rounding(at)
        at.expect("{")
        stages: list[Stage] = []
        while not at.accept("}"):
            stages.append(self._stage())
        return Kernel(name, inputs, outputs, tuple(stages), source, rounding)

    def _view(self) -> View:
        output = self._typed()
        self.at.expect("=")
        return View(output, self._value(), self._source())

    def _scatter(self) -> Scatter:
        initial = self._value()
        inputs = self._list("(", ")", self._typed)
        source = self._source()
        self.at.expect("{")
        stage = self._stage()
        self.at.expect("}")
        return Scatter(stage, initial, inputs, source)

    def _algorithm(self) -> Algorithm:
        at = self.at
        inputs = self._list("(", ")", self._typed)
        at.expect("->")
        outputs = self._list("(", ")", self._typed)
        sizes = self._list("(", ")", at.bare_index) if at.accept("sizes") else ()
        source = self._source()
        at.expect("{")
        function = FunctionParser(at).function()
        at.expect("}")
        return Algorithm(function, inputs, outputs, sizes, source)

    def _read_size(self) -> ReadSize:
        at = self.at
        symbols: list[str] = []
        if not at.text.startswith("%", at.end):
            symbols.append(self._name())
            while at.accept(","):
                symbols.append(self._name())
            at.expect("=")
        tensor, source = self._value(), self._source()
        constraints = self._list("[", "]", self._condition) if at.accept("require") else ()
        return ReadSize(tuple(symbols), tensor, constraints, source)

    def _constant(self, resolve: Resolve) -> tuple[str, Constant]:
        name = self._typed()
        self.at.expect("=")
        digest = self.at.string()
        try:
            return name, resolve(digest, self.types[name])
        except ModelError as error:
            raise self.at.error(error.message) from error

    def _stage(self) -> Stage:
        at = self.at
        output = self._value()
        write = self._indices() if at.text.startswith("[", at.end) else None
        at.expect(":")
        self._declare(output)
        at.expect("=")
        axes = self._axes()
        if write is None:
            write = tuple(Sym(axis.name) for axis in axes)
        combine, reduce = self._combine()
        return Stage(output, axes, write, self.scalar(), reduce, combine)

    def _combine(self) -> tuple[Combine | None, tuple[Axis, ...]]:
        for word in COMBINE_FUNCTION:
            if self.at.accept(f"{word}["):
                return word, self._list("", "]", self._axis)
        return None, ()

    # --- pieces

    def _list(self, opening: str, closing: str, item: Callable[[], T]) -> tuple[T, ...]:
        at = self.at
        at.expect(opening)
        found: list[T] = []
        while not at.accept(closing):
            if found:
                at.expect(",")
            found.append(item())
        return tuple(found)

    def _symbol(self) -> str:
        self.at.expect("@")
        return self.at.key()

    def _value(self) -> str:
        return value_name(self.at.take("value"))

    def _typed(self) -> str:
        name = self._value()
        self.at.expect(":")
        self._declare(name)
        return name

    def _declare(self, name: str) -> None:
        type = self._type()
        known = self.types.setdefault(name, type)
        if known != type:
            raise self.at.error(f"{name!r} has two types, {known} and {type}")

    def _type(self) -> TensorType:
        dtype = self._dtype()
        shape = self._indices()
        layout = self.at.try_take("layout")
        return TensorType(shape, dtype, None if layout is None else self.at.layout(layout))

    def _dtype(self) -> DType:
        name = self.at.take("element")
        if name not in DTYPES:
            raise self.at.error(f"unknown element type {name!r}")
        return DTYPES[name]

    def _indices(self) -> tuple[Index, ...]:
        return self._list("[", "]", self.at.bare_index)

    def _axes(self) -> tuple[Axis, ...]:
        return self._list("[", "]", self._axis)

    def _axis(self) -> Axis:
        name = self._name()
        self.at.expect("<")
        return Axis(name, self.at.bare_index())

    def _name(self) -> str:
        index = self.at.bare_index()
        if not isinstance(index, Sym):
            raise self.at.error(f"expected a name before this, not {index}")
        return index.name

    def _dim(self) -> tuple[str, Range]:
        at = self.at
        text = at.take("key")
        at.expect("in")
        low = None if at.accept(":") else at.bare_index()
        if low is not None:
            at.expect(":")
        bounded = not at.text.startswith((",", ")"), at.end)
        name = string_value(text) if text.startswith('"') else text
        return name, Range(low, at.bare_index() if bounded else None)

    def _source(self) -> tuple[str, ...]:
        return self._list("(", ")", self.at.string) if self.at.accept("source") else ()

    # --- scalar expressions

    def scalar(self, level: int = 0) -> Scalar:
        """An expression whose operators bind at least as tightly as those of ``level``."""
        if level == len(_LEVELS):
            return self._unary()
        value = self.scalar(level + 1)
        while (sign := self._sign(level)) is not None:
            other = self.scalar(level + 1)
            value = self._apply(_LEVELS[level][sign], (value, other))
        return value

    def _sign(self, level: int) -> str | None:
        return next((sign for sign in _LEVELS[level] if self.at.accept(sign)), None)

    def _unary(self) -> Scalar:
        at = self.at
        for word, value in _SPECIAL.items():
            if at.accept(word):
                return self._suffixed(value, F32)
        text = at.try_take("number")
        if text is not None:
            if "." in text:
                return self._suffixed(float(text), F32)
            return self._suffixed(int(text), I64)
        if at.accept("-"):
            return self._apply("neg", (self._unary(),))
        if at.accept("("):
            return self._parenthesised()
        spelling = at.try_take("value")
        if spelling is not None:
            name = value_name(spelling)
            if name not in self.types:
                raise at.error(f"{name!r} is read, but has no type yet")
            return Read(name, self._indices(), self.types[name].dtype)
        return self._named(at.take("element"))

    def _suffixed(self, value: float, dtype: DType) -> Number:
        chosen = self._dtype() if self.at.accept(":") else dtype
        return Number(float(value) if chosen.is_float else value, chosen)

    def _named(self, word: str) -> Scalar:
        at = self.at
        if word in ("true", "false"):
            return Number(word == "true", BOOL)
        if word == "index":
            at.expect("(")
            index = at.bare_index()
            at.expect(")")
            at.expect(":")
            return IndexValue(index, self._dtype())
        if word == "linear":
            return self._linear()
        args = self._list("(", ")", self.scalar)
        if word == "select" and len(args) == 3:
            return Select(*args, args[1].dtype)
        if word in DTYPES and len(args) == 1:
            return Cast(args[0], DTYPES[word])
        bits = DTYPES.get(word.removeprefix("bits_"))
        if bits is not None and len(args) == 1:
            return Bitcast(args[0], bits)
        return self._apply(word, args)

    def _linear(self) -> Linear:
        at = self.at
        factors = self._list("[", "]", self._matrix)
        at.expect("[")
        row = at.bare_index()
        at.expect("]")
        args = self._list("(", ")", self.scalar)
        if not args:
            raise at.error("a linear combination has operands")
        return Linear(factors, row, args, args[0].dtype)

    def _matrix(self) -> tuple[tuple[float, ...], ...]:
        return self._list("[", "]", lambda: self._list("[", "]", self._coefficient))

    def _coefficient(self) -> float:
        return float(self.at.take("number"))

    def _apply(self, function: str, args: tuple[Scalar, ...]) -> Apply:
        known = FUNCTIONS.get(function)
        if known is None:
            raise self.at.error(f"there is no scalar function {function!r}")
        if len(args) != known.arity:
            raise self.at.error(f"{function} has {known.arity} operands, not {len(args)}")
        return Apply(function, args, BOOL if known.result == "bool" else args[0].dtype)

    def _parenthesised(self) -> Scalar:
        """A group, a guard or a gather, whose ``(`` has been read."""
        at = self.at
        if at.accept("let "):
            symbol = self._name()
            at.expect("=")
            value = self.scalar()
            bound = parse_bound(at)
            at.expect("in ")
            body = self.scalar()
            result: Scalar = Bind(symbol, value, body, body.dtype, bound)
        else:
            result = self.scalar()
            if at.accept("if "):
                conditions = self._list("[", "]", self._condition)
                at.expect("else ")
                result = Guard(conditions, result, self.scalar(), result.dtype)
        at.expect(")")
        return result

    def _condition(self) -> Condition:
        at = self.at
        left = at.bare_index()
        comparison = next((c for c in _COMPARISONS if at.accept(c)), None)
        if comparison is None:
            raise at.error(f"expected one of {' '.join(get_args(Comparison))}")
        return Condition(left, cast("Comparison", comparison), at.bare_index())
