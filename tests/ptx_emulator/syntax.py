"""Text of PTX as instructions (PTX ISA, "Syntax")."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_ENTRY = re.compile(
    r"\.visible\s+\.entry\s+(\S+?)\s*\((.*?)\)\s*((?:\.\w+\s+[\d, ]+\s*)*)\{", re.DOTALL
)
_PARAMETER = re.compile(
    r"\.param\s+(?:\.align\s+(\d+)\s+)?\.(\w+)(?:\s+\.ptr[^,]*?)?\s+(\w+)(\[\d+\])?\s*$"
)
_GLOBAL = re.compile(
    r"\.global\s+(?:\.align\s+(\d+)\s+)?\.(\w+)\s+([\w$]+)(?:\[(\d*)\])?(?:\s*=\s*([^;]+))?;"
)
_SHARED = re.compile(r"\.shared\s+(?:\.align\s+(\d+)\s+)?\.(\w+)\s+([\w$]+)(?:\[(\d*)\])?")
_LOCAL = re.compile(r"\.local\s+(?:\.align\s+(\d+)\s+)?\.b8\s+([\w$]+)\[(\d+)\]")
_REGISTERS = re.compile(r"\.reg\s+\.(\w+)\s+(.*)", re.DOTALL)
_LABEL = re.compile(r"([$%\w]+):(?!:)")
_GUARD = re.compile(r"@(!?)([%\w]+)\s+")
_OPERAND = re.compile(r"\{[^}]*\}|\[[^\]]*\]|[^,\s][^,{\[]*")
_BYTES = {"pred": 1}


def type_bytes(name: str) -> int:
    """Bytes of a fundamental type, as ``b32``."""
    return _BYTES.get(name) or int(re.sub(r"\D", "", name)) // 8


@dataclass(frozen=True)
class Instruction:
    """``@guard name operands``; ``parts`` are what the dots of the name divide."""

    parts: tuple[str, ...]
    operands: tuple[str, ...]
    guard: str | None
    negated: bool

    @property
    def text(self) -> str:
        """As it was written, nearly."""
        guard = f"@{'!' * self.negated}{self.guard} " if self.guard else ""
        return f"{guard}{'.'.join(self.parts)} {', '.join(self.operands)}"


@dataclass(frozen=True)
class Parameter:
    """Of a kernel: ``size`` bytes at ``offset``."""

    name: str
    offset: int
    size: int
    is_map: bool


@dataclass(frozen=True)
class KernelCode:
    """A kernel: its instructions, where labels stand, types of registers, and shared memory that
    it has of itself, each name with alignment and bytes; local memory as well."""

    name: str
    parameters: tuple[Parameter, ...]
    instructions: tuple[Instruction, ...]
    labels: Mapping[str, int]
    registers: Mapping[str, str]
    shared: Mapping[str, tuple[int, int]]
    local: Mapping[str, tuple[int, int]]


@dataclass(frozen=True)
class Module:
    """Kernels, bytes of global names, and the names of shared memory that launches give."""

    kernels: Mapping[str, KernelCode]
    data: Mapping[str, bytes]
    given_shared: frozenset[str]


def parse_module(text: str) -> Module:
    """The module of a text; ValueError if there is no kernel in it."""
    text = _COMMENT.sub("", text)
    kernels, outside, at = dict[str, KernelCode](), list[str](), 0
    while entry := _ENTRY.search(text, at):
        outside.append(text[at : entry.start()])
        end = _closing(text, entry.end())
        kernels[entry[1]] = _kernel(entry[1], entry[2], text[entry.end() : end])
        at = end + 1
    if not kernels:
        raise ValueError("no kernel")
    outside.append(text[at:])
    rest = "".join(outside)
    data = {m[3]: _data(m[2], m[4], m[5]) for m in _GLOBAL.finditer(rest)}
    given = frozenset(m[3] for m in _SHARED.finditer(rest) if m[4] == "")
    kept = {m[3]: _place(m) for m in _SHARED.finditer(rest) if m[4] != ""}
    kernels = {n: _with_shared(kernel, kept) for n, kernel in kernels.items()}
    return Module(kernels, data, given)


def _with_shared(kernel: KernelCode, of_module: Mapping[str, tuple[int, int]]) -> KernelCode:
    """With what stands outside of kernels and is used by this one."""
    used = {o for i in kernel.instructions for o in i.operands for o in re.findall(r"[\w$]+", o)}
    shared = {n: place for n, place in of_module.items() if n in used} | dict(kernel.shared)
    return KernelCode(kernel.name, kernel.parameters, kernel.instructions, kernel.labels,
                      kernel.registers, shared, kernel.local)  # fmt: skip


def _closing(text: str, at: int) -> int:
    depth = 1
    for match in re.compile(r"[{}]").finditer(text, at):
        depth += 1 if match[0] == "{" else -1
        if not depth:
            return match.start()
    raise ValueError("a brace is not closed")


def _data(kind: str, count: str | None, values: str | None) -> bytes:
    size = type_bytes(kind)
    numbers = [int(n, 0) for n in re.findall(r"-?\w+", values)] if values else []
    held = b"".join((n & (1 << 8 * size) - 1).to_bytes(size, "little") for n in numbers)
    return held.ljust(size * int(count or 1), b"\0")


def _place(match: re.Match[str]) -> tuple[int, int]:
    return int(match[1] or 1), type_bytes(match[2]) * int(match[4] or 1)


def _parameters(text: str) -> Iterator[Parameter]:
    offset = 0
    for part in filter(None, (p.strip() for p in text.split(","))):
        match = _PARAMETER.match(part)
        if match is None:
            raise ValueError(f"no parameter: {part}")
        size = int(match[4][1:-1]) if match[4] else type_bytes(match[2])
        align = int(match[1] or size)
        offset += -offset % align if match[4] else -offset % size
        yield Parameter(match[3], offset, size, bool(match[4]))
        offset += size


def _kernel(name: str, parameters: str, body: str) -> KernelCode:
    instructions, labels = list[Instruction](), dict[str, int]()
    registers, shared = dict[str, str](), dict[str, tuple[int, int]]()
    local = dict[str, tuple[int, int]]()
    scopes: list[dict[str, str]] = [{}]
    for statement in _statements(body):
        if statement == "{":
            scopes.append({})
        elif statement == "}":
            scopes.pop()
        elif statement.endswith(":"):
            labels[_scoped(statement[:-1], scopes, len(instructions))] = len(instructions)
        elif match := _REGISTERS.match(statement):
            for register in _declared(match[2]):
                own = register if len(scopes) == 1 else f"{register}@{len(instructions)}"
                scopes[-1][register] = own
                registers[own] = match[1]
        elif match := _SHARED.match(statement):
            shared[match[3]] = _place(match)
        elif match := _LOCAL.match(statement):
            local[match[2]] = int(match[1] or 1), int(match[3])
        elif not statement.startswith("."):
            instructions.append(_instruction(statement, scopes))
    return KernelCode(name, tuple(_parameters(parameters)), tuple(instructions), labels, registers,
                      shared, local)  # fmt: skip


def _declared(text: str) -> Iterator[str]:
    for name in re.split(r"\s*,\s*", text.strip()):
        many = re.match(r"(%\w*?)<(\d+)>", name)
        yield from (f"{many[1]}{n}" for n in range(int(many[2]))) if many else (name,)


def _statements(body: str) -> Iterator[str]:
    """Instructions and directives without their semicolons, labels with their colons, braces."""
    at = 0
    while (at := at + len(body[at:]) - len(body[at:].lstrip())) < len(body):
        if body[at] in "{}":
            yield body[at]
            at += 1
        elif label := _LABEL.match(body, at):
            yield label[0]
            at = label.end()
        else:
            end = body.index(";", at)
            yield " ".join(body[at:end].split())
            at = end + 1


def _scoped(name: str, scopes: Sequence[dict[str, str]], at: int) -> str:
    """A label; of inner scopes each has its own."""
    if len(scopes) == 1:
        return name
    scopes[-1][name] = f"{name}@{at}"
    return scopes[-1][name]


def _instruction(statement: str, scopes: Sequence[Mapping[str, str]]) -> Instruction:
    names = {name: own for scope in scopes for name, own in scope.items()}

    def own(text: str) -> str:
        return re.sub(r"(?<![.\w%$])[%$\w]+", lambda m: names.get(m[0], m[0]), text)

    guard = _GUARD.match(statement)
    rest = statement[guard.end() :] if guard else statement
    name, _, operands = rest.partition(" ")
    return Instruction(
        tuple(re.split(r"(?<!:)\.", name)),
        tuple(own(o.strip()) for o in _OPERAND.findall(operands)),
        own(guard[2]) if guard else None,
        bool(guard and guard[1]),
    )
