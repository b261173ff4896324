"""The body of a kernel under construction: blocks of indices, masked loads, expressions."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from modelcc.ir.index import (
    Atom,
    Bounds,
    FloorDiv,
    FloorMod,
    Index,
    IndexMin,
    Range,
    Sym,
    bounds_of,
    product,
    simplify,
    symbols,
)
from modelcc.ir.scalar_tree import index_symbols, reads
from modelcc.ir.tensor import (
    Apply,
    Axis,
    Bind,
    Bitcast,
    Cast,
    Condition,
    Guard,
    IndexValue,
    Number,
    Read,
    Scalar,
    Select,
    Stage,
)
from modelcc.ir.types import BOOL, TensorType
from modelcc.targets.triton.functions import HELPERS, call, element, number

_MOST = 1 << 31
"""Elements that 32-bit indices reach."""


@dataclass(frozen=True)
class AxisPlace:
    """The value of an index symbol: a variable that moves along ``dims`` of the block, which are
    named by letters, and is in range where ``mask`` holds (empty: everywhere)."""

    text: str
    mask: str = ""
    dims: str = ""


class BlockCode:
    """Lines of a kernel on tensors of ``types``, whose named dimensions have ``bounds``."""

    def __init__(self, types: Mapping[str, TensorType], bounds: Bounds) -> None:
        self.types = types
        self.lines: list[str] = []
        self.places = {name: AxisPlace(name) for name in bounds}
        self.values: dict[str, str] = {}
        self.bounds = dict(bounds)
        self.checked = False
        self._depth = 1
        self._taken = {*types, *bounds, "tl", "triton", "torch"}
        self._loaded: list[dict[object, str]] = [{}]
        self._dims: dict[str, str] = {}
        sizes = [bounds_of(t.elements, bounds).hi for t in types.values()]
        self._wide = any(not isinstance(s, int) or s >= _MOST for s in sizes)

    # --- lines

    def line(self, text: str) -> None:
        """Append a line."""
        self.lines.append("    " * self._depth + text)

    def let(self, hint: str, text: str) -> str:
        """A new name for a value."""
        if text.isidentifier():
            return text
        name = self.fresh(hint)
        self.line(f"{name} = {_bare(text)}")
        return name

    def fresh(self, hint: str) -> str:
        """A unique name."""
        base = re.sub(r"\W", "_", hint).strip("_") or "v"
        name, count = base, 0
        while name in self._taken:
            count += 1
            name = f"{base}_{count}"
        self._taken.add(name)
        return name

    @contextmanager
    def loop(self, head: str) -> Generator[None]:
        """A loop; what is loaded inside is forgotten at its end."""
        self.line(head)
        self._depth += 1
        with self.scope():
            yield
        self._depth -= 1

    @contextmanager
    def scope(self) -> Generator[None]:
        """A scope; what is placed or loaded inside is forgotten at its end."""
        self._loaded.append({})
        places, dims = self.places, self._dims
        self.places, self._dims = dict(places), dict(dims)
        yield
        self.places, self._dims = places, dims
        self._loaded.pop()

    # --- indices

    def program(self, axis: int) -> str:
        """The id of this program."""
        return f"tl.program_id({axis})" + (".to(tl.int64)" if self._wide else "")

    def arange(self, block: str, shape: str = "") -> str:
        """0, 1, 2 … in a block."""
        text = f"tl.arange(0, {block}){shape}"
        return f"{text}.to(tl.int64)" if self._wide else text

    def along(self, dim: str, text: str) -> None:
        """A dimension of the block, and a variable that moves along it."""
        self._dims[dim] = text

    def keep(self, dim: str) -> None:
        """Drops all other dimensions of the block."""
        self._dims = {d: text for d, text in self._dims.items() if d == dim}

    def flat(self, axes: Sequence[Axis], text: str, mask: str, dim: str) -> None:
        """``axes`` by their linear index ``text``."""
        inner: Index = 1
        for number_, axis in reversed(list(enumerate(axes))):
            own = text if inner == 1 else f"({text} // {self.index(inner)})"
            if number_:
                own = f"{own} % {self.index(axis.extent)}"
            if axis.extent == 1:
                own = "0"
            name = own if own in (text, "0") else self.let(axis.name, own)
            self.place(axis, AxisPlace(name, mask if own != "0" else "", dim if own != "0" else ""))
            inner = inner * axis.extent

    def place(self, axis: Axis, place: AxisPlace) -> None:
        """Sets the value of an axis."""
        self.places[axis.name] = place
        self.bounds[axis.name] = Range(0, axis.extent - 1)

    def index(self, e: Index) -> str:
        """An index expression; quotients are rounded down."""
        if isinstance(e, int):
            return f"({e})" if e < 0 else str(e)
        if isinstance(e, Atom):
            return self._atom(e)
        parts: list[str] = []
        for coeff, mono in e.terms.values():
            factors = [self._atom(atom) for atom in mono]
            parts.append(" * ".join([str(coeff)] * (coeff != 1) + factors))
        parts += [str(e.const)] if e.const else []
        parts.sort(key=lambda part: part.startswith("-"))
        return f"({' + '.join(parts).replace('+ -', '- ')})"

    def _atom(self, e: Atom) -> str:
        if isinstance(e, Sym):
            return self.places[e.name].text
        args = [self.index(operand) for operand in e.operands()]
        match e:
            case FloorDiv() | FloorMod():
                divides = isinstance(e, FloorDiv)
                lows = [bounds_of(o, self.bounds).lo for o in e.operands()]
                if all(low is not None and low >= 0 for low in lows):
                    return f"({args[0]} {'//' if divides else '%'} {args[1]})"
                return f"{'_floordiv' if divides else '_mod'}({args[0]}, {args[1]})"
            case _:
                name = "tl.minimum" if isinstance(e, IndexMin) else "tl.maximum"
                result = args[0]
                for arg in args[1:]:
                    result = f"{name}({result}, {arg})"
                return result

    def condition(self, conditions: Iterable[Condition]) -> str:
        """All of them."""
        texts = [f"({self.index(c.left)} {c.comparison} {self.index(c.right)})" for c in conditions]
        return texts[0] if len(texts) == 1 else f"({' & '.join(texts)})"

    def dims_of(self, names: Iterable[str]) -> str:
        """Dimensions that index symbols move along."""
        return "".join(sorted({d for n in names if n in self.places for d in self.places[n].dims}))

    # --- memory

    def _offset(self, tensor: str, indices: Sequence[Index]) -> Index:
        type_ = self.types[tensor]
        if type_.layout is not None:
            raise NotImplementedError(f"{tensor} has a layout, {type_}")
        inner = [product(type_.shape[d + 1 :]) for d in range(type_.rank)]
        return simplify(sum((i * s for i, s in zip(indices, inner, strict=True)), 0), self.bounds)

    def _access(
        self, tensor: str, indices: Sequence[Index], where: tuple[Condition, ...]
    ) -> tuple[str, str]:
        """Pointers to a tensor's elements, and the mask of their accesses."""
        offset = self._offset(tensor, indices)
        named = [n for i in indices for n in sorted(symbols(i))]
        sides = {n for c in where for s in (c.left, c.right) for n in symbols(s)}
        masks = [self.places[n].mask for n in named if n in self.places]
        texts = [*dict.fromkeys(filter(None, masks))]
        text = f"{tensor} + {_bare(self.index(offset))}" if offset != 0 else tensor
        inside = set(self.dims_of(symbols(offset)))
        texts += [self.condition(where)] if where else []
        around = {d for n in (*named, *sides) if n in self.places for d in self.places[n].dims}
        for dim in sorted(around - inside) if texts else ():
            text += f" + 0 * {self._dims[dim]}"
        return text, " & ".join(texts)

    def store(self, stage: Stage, value: str, dims: str | None = None) -> None:
        """The stage's elements become ``value``, which has ``dims`` (None: all of the block's)."""
        text, mask = self._access(stage.output, stage.write, ())
        written = self.dims_of(n for i in stage.write for n in symbols(i))
        for dim in sorted(set(self._dims if dims is None else dims) - set(written)):
            text += f" + 0 * {self._dims[dim]}"
        self.line(f"tl.store({text}, {_bare(value)}{f', mask={mask}' if mask else ''})")

    def _load(self, read: Read, where: tuple[Condition, ...], other: str = "") -> str:
        key = (read.tensor, read.indices, where, other)
        for known in self._loaded:
            if key in known:
                return known[key]
        text, mask = self._access(read.tensor, read.indices, where)
        masked = f", mask={mask}, other={other or '0'}" if mask else ""
        name = self.let(f"{read.tensor}_value", f"tl.load({text}{masked})")
        self._loaded[-1][key] = name
        return name

    # --- values

    def value(self, scalar: Scalar, where: tuple[Condition, ...] = ()) -> str:
        """A scalar in every element of the block, used only ``where`` conditions hold."""
        match scalar:
            case Number():
                return number(scalar.value, scalar.dtype)
            case Read():
                if scalar.tensor in self.values:
                    return self.values[scalar.tensor]
                return self._load(scalar, where)
            case IndexValue():
                return f"tl.cast({self.index(scalar.index)}, {element(scalar.dtype)})"
            case Apply():
                args = tuple(self.value(a, where) for a in scalar.args)
                return call(scalar.function, args, scalar.args[0].dtype)
            case Select():
                parts = (scalar.condition, scalar.then, scalar.other)
                return f"tl.where({', '.join(_bare(self.value(p, where)) for p in parts)})"
            case Cast():
                return self._cast(scalar, where)
            case Bitcast():
                value = self.value(scalar.value, where)
                return f"{value}.to({element(scalar.dtype)}, bitcast=True)"
            case Guard():
                return self._guard(scalar, where)
            case Bind():
                return self._bind(scalar, where)
            case _:
                raise NotImplementedError(f"Triton has no form of {type(scalar).__name__}")

    def _cast(self, scalar: Cast, where: tuple[Condition, ...]) -> str:
        value = self.value(scalar.value, where)
        if scalar.dtype == BOOL:
            return f"({value} != 0)"
        if isinstance(scalar.value, Number):
            return number(scalar.value.value, scalar.dtype)
        return f"{value}.to({element(scalar.dtype)})"

    def _guard(self, scalar: Guard, where: tuple[Condition, ...]) -> str:
        inner = (*where, *scalar.conditions)
        inside, outside = scalar.inside, scalar.outside
        plain = isinstance(inside, Read) and inside.tensor not in self.values and not where
        if plain and isinstance(inside, Read) and isinstance(outside, Number):
            return self._load(inside, inner, number(outside.value, outside.dtype))
        texts = self.value(inside, inner), self.value(outside, where)
        condition = self.condition(scalar.conditions)
        return f"tl.where({_bare(condition)}, {_bare(texts[0])}, {_bare(texts[1])})"

    def _bind(self, scalar: Bind, where: tuple[Condition, ...]) -> str:
        value = self.let(scalar.symbol, self.value(scalar.value, where))
        names = {*index_symbols(scalar.value)}
        own = {d for r in reads(scalar.value) if r.tensor in self.values for d in self._dims}
        dims = "".join(sorted({*self.dims_of(names), *own}))
        masks = [self.places[n].mask for n in sorted(names) if n in self.places]
        masks += [self.condition(where)] if where else []
        if scalar.bound is not None:
            self.checked = True
            inside = f"(({value} >= 0) & ({value} < {self.index(scalar.bound.extent)}))"
            outside = "".join(f" | ~({m})" for m in dict.fromkeys(filter(None, masks)))
            self.line(f'tl.device_assert({inside}{outside}, "an index is out of range")')
            value = self.let(scalar.symbol, f"tl.where({inside}, {value}, 0)")
        self.places = {**self.places, scalar.symbol: AxisPlace(value, "", dims)}
        self.bounds[scalar.symbol] = Range(0, None)
        return self.value(scalar.body, where)


def helpers_of(lines: Iterable[str]) -> dict[str, str]:
    """Functions of the file that ``lines`` call."""
    text = "\n".join(lines)
    found = {name for name in HELPERS if f"{name}(" in text}
    text += "\n".join(HELPERS[name] for name in found)
    return {name: body for name, body in HELPERS.items() if f"{name}(" in text}


def _bare(text: str) -> str:
    """Without parentheses around all of it."""
    if not (text.startswith("(") and text.endswith(")")):
        return text
    depth = 0
    for place, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0 and place < len(text) - 1:
            return text
    return text[1:-1]
