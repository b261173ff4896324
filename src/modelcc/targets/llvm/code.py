"""LLVM function text under construction: blocks, fresh names, and scopes of visible values.

Scopes nest as the loops do; values computed in an outer scope dominate the inner ones, which reuse
them from its cache.
"""

from __future__ import annotations

from collections.abc import Generator, Set
from contextlib import contextmanager
from dataclasses import dataclass, field

from modelcc.ir.index import Index, Range, Sym
from modelcc.ir.loop import Buffer
from modelcc.ir.tiles import TileMap
from modelcc.targets.llvm.dialect import LlvmGroups
from modelcc.targets.llvm.instructions import NONE, Instructions
from modelcc.targets.llvm.values import quoted

_LONGEST = 200
"""Maximum characters of a name: LLVM truncates those longer than 1024 bytes, which may then
collide."""


@dataclass
class BasicBlock:
    """A basic block; the terminator is separate so that instructions can still be appended."""

    label: str
    lines: list[str] = field(default_factory=list[str])
    terminator: str = ""


@dataclass(frozen=True)
class LlvmValue:
    """The LLVM form of a ``Var``: an operand, or a register's address to load from."""

    operand: str
    type: str
    is_register: bool = False


@dataclass
class LlvmScope:
    """Names visible in a block, and results computed there, by keys that identify their value."""

    block: BasicBlock
    symbols: dict[str, str] = field(default_factory=dict[str, str])
    replaced: dict[str, Index] = field(default_factory=dict[str, Index])
    values: dict[str, LlvmValue] = field(default_factory=dict[str, LlvmValue])
    buffers: dict[str, tuple[str, Buffer]] = field(default_factory=dict[str, "tuple[str, Buffer]"])
    cache: dict[str, str] = field(default_factory=dict[str, str])
    bounds: dict[str, Range] = field(default_factory=dict[str, Range])
    multiples: dict[str, int] = field(default_factory=dict[str, int])


class Code:
    """The body of one LLVM function, called ``name``; ``declarations`` is shared by the module's
    functions.  With ``groups`` it is a kernel for groups of threads, accompanied by ``globals``;
    ``lane`` is the index of its innermost thread loop, of ``warp`` threads, ``shared`` has pointers
    to shared memory, and ``maps`` collects tensors of which boxes are copied."""

    def __init__(
        self,
        declarations: dict[str, None],
        instructions: Instructions = NONE,
        groups: LlvmGroups | None = None,
        name: str = "",
    ) -> None:
        self.declarations = declarations
        self.instructions = instructions
        self.groups = groups
        self.name = name
        self.globals: list[str] = []
        self.lane = ""
        self.warp = 0
        self.maps: dict[TileMap, str] = {}
        self.shared: dict[str, str] = {}
        self.entry = BasicBlock("entry")
        self.blocks = [self.entry]
        self.scopes = [LlvmScope(self.entry)]
        self.allocations: list[str] = []
        self._taken: dict[str, int] = {}

    @property
    def scope(self) -> LlvmScope:
        return self.scopes[-1]

    @property
    def lane_index(self) -> Index:
        """The lane of a thread within its warp."""
        return Sym(self.lane)

    def fresh(self, hint: str) -> str:
        """A unique name in the function: ``hint``, ``hint.1``, …, shortened if long."""
        hint = hint[:_LONGEST]
        count = self._taken.get(hint, 0)
        self._taken[hint] = count + 1
        if not count:
            return hint
        name = f"{hint}.{count}"
        return self.fresh(name) if name in self._taken else self._take(name)

    def local(self, hint: str) -> str:
        """A fresh local value, spelled with its ``%``."""
        return f"%{quoted(self.fresh(hint))}"

    def emit(self, instruction: str, hint: str = "v") -> str:
        """Appends ``%name = instruction`` to the innermost scope's block; returns its name."""
        name = self.local(hint)
        self.effect(f"{name} = {instruction}")
        return name

    def effect(self, instruction: str) -> None:
        """Appends an instruction without a result."""
        self.scope.block.lines.append(instruction)

    def allocate(self, type_: str, hint: str, align: int | None = None) -> str:
        """A stack slot with the lifetime of the function; returns its address."""
        name = self.local(hint)
        suffix = "" if align is None else f", align {align}"
        if self.groups is None or self.groups.private == self.groups.generic:
            self.allocations.append(f"{name} = alloca {type_}{suffix}")
            return name
        special = f"addrspace({self.groups.private})"
        self.allocations.append(f"{name} = alloca {type_}{suffix}, {special}")
        generic = self.local(hint)
        self.allocations.append(f"{generic} = addrspacecast ptr {special} {name} to ptr")
        return generic

    def begin_block(self, hint: str) -> BasicBlock:
        """Starts a block; the innermost scope continues in it."""
        block = BasicBlock(self.fresh(hint))
        self.blocks.append(block)
        self.scope.block = block
        return block

    def intrinsic(self, result: str, name: str, types: str) -> str:
        """Declares an intrinsic; returns the ``result @name`` part of a call to it."""
        self.declarations[f"declare {result} @{name}({types})"] = None
        return f"{result} @{name}"

    def cached(self, key: str) -> str | None:
        """The operand computed for ``key`` in a scope that dominates here."""
        for scope in reversed(self.scopes):
            found = scope.cache.get(key)
            if found is not None:
                return found
        return None

    @contextmanager
    def nested(self, block: BasicBlock) -> Generator[LlvmScope]:
        """A scope that starts in ``block``; its cached values are dropped at its end."""
        scope = LlvmScope(block)
        self.scopes.append(scope)
        try:
            yield scope
        finally:
            self.scopes.pop()

    def text(self, without: Set[str] = frozenset()) -> str:
        """All blocks, the entry's stack slots first, except the lines ``without``."""
        lines: list[str] = []
        for block in self.blocks:
            lines.append(f"{quoted(block.label)}:")
            if block is self.entry:
                lines += [f"  {line}" for line in self.allocations]
            own = (*block.lines, block.terminator)
            lines += [f"  {line}" for line in own if line not in without]
        return "\n".join(lines)

    def _take(self, name: str) -> str:
        self._taken[name] = 1
        return name
