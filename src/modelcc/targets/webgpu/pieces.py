"""Memory larger than a binding: several variables, and functions that select one of them."""

from __future__ import annotations

from dataclasses import dataclass

from modelcc.targets.c.code import Code


@dataclass(frozen=True)
class MemoryPieces:
    """Variables ``names`` of ``length`` elements each, consecutive in memory, and the names of the
    functions that ``load`` an element and ``store`` one."""

    names: tuple[str, ...]
    length: int
    load: str
    store: str

    def loader(self, element: str, atomic: bool) -> str:
        """The function that loads the element at an index."""
        spelled = "atomicLoad(&{})" if atomic else "{}"
        chosen = self._chosen(f"return {spelled};")
        return f"fn {self.load}(i: u32) -> {element} {{\n{chosen}\n}}"

    def storer(self, element: str, atomic: bool) -> str:
        """The function that stores ``value`` at an index; of atomic words it keeps the bits
        ``kept``."""
        parameters = f"i: u32, value: {element}" + (f", kept: {element}" if atomic else "")
        own = "atomicAnd(&{0}, kept); atomicOr(&{0}, value);" if atomic else "{0} = value;"
        return f"fn {self.store}({parameters}) {{\n{self._chosen(f'{own} return;')}\n}}"

    def _chosen(self, statement: str) -> str:
        """``statement`` on the element at ``i``, in the variable that has it."""
        lines: list[str] = []
        for number, name in enumerate(self.names):
            start = number * self.length
            at = f"i - {start}u" if number else "i"
            own = statement.format(f"{name}[{at}]")
            last = number == len(self.names) - 1
            lines.append(
                f"    {own}" if last else f"    if (i < {start + self.length}u) {{ {own} }}"
            )
        return "\n".join(lines)


def pieces_named(code: Code, name: str, count: int, length: int) -> MemoryPieces:
    """``count`` variables, the first of which is ``name``."""
    names = (name, *(code.fresh(name) for _ in range(count - 1)))
    return MemoryPieces(names, length, code.fresh(f"{name}_load"), code.fresh(f"{name}_store"))
