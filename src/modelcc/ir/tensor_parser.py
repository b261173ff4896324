"""Reading tensor programs from text; see :mod:`modelcc.ir.tensor_text` for the form."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from modelcc.ir.constant import Constant
from modelcc.ir.errors import ModelError
from modelcc.ir.forms import enclosed
from modelcc.ir.graph_parser import Resolve, resolver
from modelcc.ir.spellings import VALUES
from modelcc.ir.tensor import Item, Kernel, TensorProgram
from modelcc.ir.tensor_forms import DIMS, ITEMS, STATES, SYMBOL_NAME, TYPED, TYPEDS
from modelcc.ir.text_reader import TextReader
from modelcc.ir.types import TensorType


def parse_tensor_program(text: str, constants: Mapping[str, Constant] | Resolve) -> TensorProgram:
    """The program that ``text`` spells: the inverse of ``print_tensor_program``.

    ``constants`` finds constants from their digest.  :class:`ModelError` with line and column if
    the text is malformed.  Does not verify: see ``verify_tensor_program``.
    """
    at = TextReader(text)
    program = _read_program(at, resolver(constants))
    _expect_end(at)
    return program


def parse_kernel(text: str) -> tuple[Kernel, Mapping[str, TensorType]]:
    """One kernel and the types of its tensors: the inverse of ``print_kernel``."""
    at = TextReader(text)
    kernel = ITEMS.read(at)
    if not isinstance(kernel, Kernel):
        raise at.error("expected a kernel before this")
    _expect_end(at)
    return kernel, MappingProxyType(at.types)


def _expect_end(at: TextReader) -> None:
    if at.end != len(at.text):
        raise at.error("expected the end of the text")


def _read_program(at: TextReader, resolve: Resolve) -> TensorProgram:
    at.expect("program")
    name = SYMBOL_NAME.read(at, ())
    inputs = enclosed(TYPEDS, "(", ")").read(at, ())
    at.expect("->")
    outputs = enclosed(VALUES, "(", ")").read(at, ())
    states = dict(STATES.read(at, ())) if at.accept("states") else {}
    dims = dict(DIMS.read(at, ())) if at.accept("dims") else {}
    at.expect("{")
    constants: dict[str, Constant] = {}
    items: list[Item] = []
    while not at.accept("}"):
        if at.accept("constant "):
            key, constant = _read_constant(at, resolve)
            constants[key] = constant
        else:
            items.append(_read_item(at))
    return TensorProgram(
        name,
        inputs,
        outputs,
        tuple(items),
        MappingProxyType(at.types),
        MappingProxyType(constants),
        MappingProxyType(dims),
        MappingProxyType(states),
    )


def _read_item(at: TextReader) -> Item:
    word = at.next_word()
    if word not in ITEMS.words:
        *most, last = ("constant", *ITEMS.words)
        raise at.error(f"expected {', '.join(most)} or {last} after {at.key()!r}")
    return ITEMS.read(at)


def _read_constant(at: TextReader, resolve: Resolve) -> tuple[str, Constant]:
    name = TYPED.read(at, ())
    at.expect("=")
    digest = at.string()
    try:
        return name, resolve(digest, at.types[name])
    except ModelError as error:
        raise at.error(error.message) from error
