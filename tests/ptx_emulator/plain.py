"""Instructions that threads carry out each by itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from ptx_emulator.arithmetic import comparison, conversion, operation
from ptx_emulator.memory import GpuFaultError
from ptx_emulator.syntax import Instruction, type_bytes
from ptx_emulator.threads import PARAMETERS, Threads, parts_of
from ptx_emulator.values import numbers, word_type

from modelcc.ir.types import Array

Step = Callable[[Array], None]

NOTHING = frozenset({"fence", "membar", "prefetch", "griddepcontrol", "nanosleep", "pragma"})
"""Instructions that change nothing that is emulated."""


def plain_step(threads: Threads, instruction: Instruction) -> Step | None:
    """What an instruction does; None if threads do it together."""
    name = instruction.parts[0]
    if name in ("ld", "ldu"):
        return _load(threads, instruction)
    if name == "st":
        return _store(threads, instruction)
    if name in ("atom", "red") and instruction.parts[1] != "async":
        return _atomic(threads, instruction)
    if name == "mov":
        return _move(threads, instruction)
    if name == "setp":
        return _compare(threads, instruction)
    if name == "selp":
        return _select(threads, instruction)
    if name == "cvt":
        return _convert(threads, instruction)
    if name == "cvta":
        return _move(threads, instruction)
    return _compute(threads, instruction)


def _compute(threads: Threads, instruction: Instruction) -> Step | None:
    found = operation(instruction.parts)
    if found is None:
        return None
    function, kind = found
    to, *given = instruction.operands
    name = instruction.parts[0]
    kinds = [kind] * len(given)
    if name in ("shl", "shr", "bfe"):
        kinds[1:] = ["u32"] * (len(given) - 1)
    result = kind
    if "wide" in instruction.parts:
        result = f"{kind[0]}{int(kind[1:]) * 2}"
        kinds[2:] = [result] * (len(given) - 2)
    elif name in ("clz", "popc"):
        result = "u32"
    reads = [threads.reader(g, k) for g, k in zip(given, kinds, strict=True)]
    write = threads.writer(to, result)
    return lambda lanes: write(lanes, function(*(read(lanes) for read in reads)))


def _move(threads: Threads, instruction: Instruction) -> Step:
    to, source = instruction.operands
    kind = instruction.parts[-1]
    if to.startswith("{"):
        return _take_apart(threads, parts_of(to), source, kind)
    if source.startswith("{"):
        return _put_together(threads, to, parts_of(source), kind)
    read, write = threads.reader(source, kind), threads.writer(to, kind)
    return lambda lanes: write(lanes, read(lanes))


def _take_apart(threads: Threads, to: Sequence[str], source: str, kind: str) -> Step:
    bits = type_bytes(kind) * 8 // len(to)
    read = threads.reader(source, kind.replace("b", "u"))
    writes = [threads.writer(name, f"u{bits}") for name in to]

    def step(lanes: Array) -> None:
        value = read(lanes).astype(np.uint64)
        for n, write in enumerate(writes):
            write(lanes, (value >> np.uint64(n * bits)).astype(f"u{bits // 8}"))

    return step


def _put_together(threads: Threads, to: str, sources: Sequence[str], kind: str) -> Step:
    bits = type_bytes(kind) * 8 // len(sources)
    reads = [threads.reader(name, f"u{bits}") for name in sources]
    write = threads.writer(to, kind.replace("b", "u"))

    def step(lanes: Array) -> None:
        parts = (read(lanes).astype(np.uint64) << np.uint64(n * bits)
                 for n, read in enumerate(reads))  # fmt: skip
        whole = sum(parts, np.zeros(len(lanes), np.uint64))
        write(lanes, whole.astype(word_type(type_bytes(kind))))

    return step


def _compare(threads: Threads, instruction: Instruction) -> Step:
    kind = instruction.parts[-1]
    holds = comparison(instruction.parts[1])
    to, left, right, *third = instruction.operands
    reads = threads.reader(left, kind), threads.reader(right, kind)
    writes = [threads.writer(name, "pred") for name in to.split("|")]
    joined = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}
    join = joined[instruction.parts[2]] if third else None
    also = threads.reader(third[0], "pred") if third else None

    def step(lanes: Array) -> None:
        found = holds(*(read(lanes) for read in reads))
        if found.ndim == 2:
            for n, write in enumerate(writes):
                write(lanes, found[:, n])
            return
        if join and also:
            found = join(found, also(lanes))
        for write, value in zip(writes, (found, ~found), strict=False):
            write(lanes, value)

    return step


def _select(threads: Threads, instruction: Instruction) -> Step:
    to, one, other, which = instruction.operands
    kind = instruction.parts[-1]
    reads = threads.reader(one, kind), threads.reader(other, kind)
    choose, write = threads.reader(which, "pred"), threads.writer(to, kind)
    return lambda lanes: write(lanes, np.where(choose(lanes), *(read(lanes) for read in reads)))


def _convert(threads: Threads, instruction: Instruction) -> Step | None:
    convert = conversion(instruction.parts)
    if convert is None:
        return None
    to, *given = instruction.operands
    kind, source = instruction.parts[-2:]
    write, reads = threads.writer(to, kind), [threads.reader(g, source) for g in given]
    if len(reads) == 1:
        return lambda lanes: write(lanes, convert(reads[0](lanes)))
    limit = "satfinite" in instruction.parts

    def pair(lanes: Array) -> None:
        """The first operand goes to the upper half."""
        values = np.stack([read(lanes) for read in reversed(reads)], axis=-1)
        write(lanes, _finite(values, kind) if limit else values)

    return pair


def _finite(values: Array, kind: str) -> Array:
    most = {"e4m3x2": 448.0, "e5m2x2": 57344.0}[kind]
    return np.where(np.isnan(values), values, np.clip(values, -most, most))


# --- memory


def _space(parts: Sequence[str]) -> str:
    """Where an address is, of one of the names of an instruction."""
    spaces = ("shared", "shared::cta", "param", "local", "global")
    return next((s.removesuffix("::cta") for s in parts if s in spaces), "global")


def _vector(operand: str, kind: str) -> tuple[list[str], int]:
    return parts_of(operand), type_bytes(kind)


def _load(threads: Threads, instruction: Instruction) -> Step:
    kind, space = instruction.parts[-1], _space(instruction.parts)
    to, size = _vector(instruction.operands[0], kind)
    word = f"u{size * 8}" if kind[0] == "b" else kind
    writes = [threads.writer(name, word) for name in to]
    if space == "param":
        return _load_parameter(threads, instruction.operands[1], writes, word)
    address = threads.address(instruction.operands[1])
    shared, group = threads.shared, threads.group

    def step(lanes: Array) -> None:
        first = address(lanes)
        _check_vector(first, size * len(writes))
        threads.note(instruction, space, lanes, first, size * len(writes))
        for n, write in enumerate(writes):
            places = first + n * size
            if space == "local":
                words = threads.local.view(word_type(size))[lanes, places // size]
            elif space == "shared":
                words = shared.words(group[lanes], places, size)
            else:
                words = threads.global_words(lanes, places, size)
            write(lanes, numbers(words, word))

    return step


def _load_parameter(
    threads: Threads, operand: str, writes: Sequence[Callable[[Array, Array], None]], word: str
) -> Step:
    """Of a name, or of a place that each thread has in a register."""
    address, size = threads.address(operand), type_bytes(word)
    held = np.frombuffer(threads.around.parameters, np.uint8)

    def step(lanes: Array) -> None:
        first = (address(lanes).astype(np.int64) - PARAMETERS)[:, None]
        for n, write in enumerate(writes):
            raw = held[first + np.arange(n * size, (n + 1) * size)]
            write(lanes, numbers(raw.view(word_type(size))[:, 0], word))

    return step


def _store(threads: Threads, instruction: Instruction) -> Step:
    kind, space = instruction.parts[-1], _space(instruction.parts)
    names, size = _vector(instruction.operands[1], kind)
    reads = [threads.reader(name, f"u{size * 8}") for name in names]
    address = threads.address(instruction.operands[0])
    shared, group = threads.shared, threads.group

    def step(lanes: Array) -> None:
        first = address(lanes)
        _check_vector(first, size * len(reads))
        threads.note(instruction, space, lanes, first, size * len(reads))
        for n, read in enumerate(reads):
            places = first + n * size
            if space == "local":
                threads.local.view(word_type(size))[lanes, places // size] = read(lanes)
            elif space == "shared":
                shared.put(group[lanes], places, read(lanes), size, lanes)
            else:
                threads.put_global(lanes, places, read(lanes), size)

    return step


def _check_vector(addresses: Array, size: int) -> None:
    if (addresses % size).any():
        raise GpuFaultError(f"{size} bytes at an address that is no multiple of that")


def _atomic(threads: Threads, instruction: Instruction) -> Step:
    """One thread after the other, in their order."""
    kind, what = instruction.parts[-1], instruction.parts[-2]
    operands = instruction.operands
    to = operands[0] if instruction.parts[0] == "atom" else "_"
    place, *given = operands[1:] if instruction.parts[0] == "atom" else operands
    word = kind.replace("b", "u") if kind[0] == "b" and kind[:2] != "bf" else kind
    address, reads = threads.address(place), [threads.reader(g, word) for g in given]
    write, size = threads.writer(to, word), type_bytes(kind)
    shared, group = threads.shared, threads.group
    space = _space(instruction.parts)

    def step(lanes: Array) -> None:
        places, values = address(lanes), [read(lanes) for read in reads]
        old = np.empty(len(lanes), values[0].dtype)
        for n, lane in enumerate(lanes):
            here, own = places[n : n + 1], group[lane : lane + 1]
            held = (shared.words(own, here, size) if space == "shared"
                    else threads.global_words(lanes[n : n + 1], here, size))  # fmt: skip
            old[n] = numbers(held, word)[0]
            new = _changed(what, old[n], *(v[n] for v in values))
            bits = np.array([new], old.dtype).view(word_type(size))
            if space == "shared":
                shared.put(own, here, bits, size, lanes[n : n + 1])
            else:
                threads.put_global(lanes[n : n + 1], here, bits, size)
        write(lanes, old)

    return step


def _changed(what: str, old: Array, *given: Array) -> Array:
    value = given[0]
    if what == "cas":
        return given[1] if old == value else old
    changes: dict[str, Callable[[], Array]] = {
        "add": lambda: old + value, "min": lambda: np.minimum(old, value),
        "max": lambda: np.maximum(old, value), "exch": lambda: value, "and": lambda: old & value,
        "or": lambda: old | value, "xor": lambda: old ^ value,
        "inc": lambda: old + 1 if old < value else value - value,
    }  # fmt: skip
    return changes[what]()
