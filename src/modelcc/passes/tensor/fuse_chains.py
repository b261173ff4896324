"""Chained contractions: sums over tiles of products that are recomputed, and never stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from modelcc.ir.index import Index, bounds_of, product
from modelcc.ir.naming import Names
from modelcc.ir.scalar_tree import reads
from modelcc.ir.tensor import Item, Kernel, Stage, TensorProgram, item_outputs
from modelcc.ir.tensor_renaming import rename_stage
from modelcc.ir.types import TensorType
from modelcc.passes.tensor.fused_kernel import fused_kernel
from modelcc.passes.tensor.makers import Makers
from modelcc.passes.tensor.tile_chain import TileChain, match_tile_chain


@dataclass(frozen=True)
class FuseChains:
    """Sums of rows of tensors that products make, fused with these products: gradients of
    attention.

    Each of several sums of such a tensor recomputes it, so that it is never in memory: this takes
    more products, with fewer terms (K) than a tile has rows and keys by a factor of more than
    ``share``.  Sums over the same rows are one kernel, for which ``fits`` has to find a schedule.
    Either all sums of a tensor are fused, or none.  One sum of a single product is left to
    ``FuseContractions``.

    before::

        program @main(%q: f32[n, 8], %k: f32[n, 8], %g: f32[n, 8], %v: f32[n, 8]) -> (%y)
            dims(n in 64:) {
          kernel @A(%q: f32[n, 8], %k: f32[n, 8]) -> (%p: f32[n, n]) {
            %s: f32[n, n] = [i < n, j < n] sum[d < 8] %q[i, d] * %k[j, d]
            %p: f32[n, n] = [i < n, j < n] exp(%s[i, j])
          }
          kernel @B(%g: f32[n, 8], %v: f32[n, 8], %p: f32[n, n]) -> (%w: f32[n, n]) {
            %t: f32[n, n] = [i < n, j < n] sum[d < 8] %g[i, d] * %v[j, d]
            %w: f32[n, n] = [i < n, j < n] %p[i, j] * %t[i, j]
          }
          kernel @C(%w: f32[n, n], %k: f32[n, 8]) -> (%y: f32[n, 8]) {
            %y: f32[n, 8] = [i < n, e < 8] sum[j < n] %w[i, j] * %k[j, e]
          }
        }

    after::

        program @main(%q: f32[n, 8], %k: f32[n, 8], %g: f32[n, 8], %v: f32[n, 8]) -> (%y)
            dims(n in 64:) {
          kernel @A_B_C(%q: f32[n, 8], %k: f32[n, 8], %g: f32[n, 8], %v: f32[n, 8])
            -> (%y: f32[n, 8]) {
            %s: f32[n, n] = [i < n, j < n] sum[d < 8] %q[i, d] * %k[j, d]
            %p: f32[n, n] = [i < n, j < n] exp(%s[i, j])
            %t: f32[n, n] = [i < n, j < n] sum[d < 8] %g[i, d] * %v[j, d]
            %w: f32[n, n] = [i < n, j < n] %p[i, j] * %t[i, j]
            %y: f32[n, 8] = [i < n, e < 8] sum[j < n] %w[i, j] * %k[j, e]
          }
        }
    """

    fits: Callable[[Kernel, TensorProgram], bool] = lambda kernel, program: True
    share: int = 4

    def __call__(self, program: TensorProgram) -> TensorProgram:
        makers = Makers.of(program)
        kernels = [item for item in program.items if isinstance(item, Kernel)]
        found = [c for k in kernels if (c := self._candidate(k, makers, program)) is not None]
        taken = self._joined(_consistent(found, kernels), program)
        return _rewritten(program, taken) if taken else program

    def _candidate(
        self, kernel: Kernel, makers: Makers, program: TensorProgram
    ) -> _SummedRows | None:
        """``kernel`` with all that make the rows it sums, if that is a profitable chain."""
        if len(kernel.outputs) != 1 or not kernel.stages[0].reduce:
            return None
        for read in reads(kernel.stages[0].body):
            found = _made_by(read.tensor, makers, program)
            sums = _SummedRows(found, (kernel,)) if found else None
            if sums is not None and self._worth(sums, program):
                return sums
        return None

    def _worth(self, sums: _SummedRows, program: TensorProgram) -> bool:
        chain = match_tile_chain(sums.stages, sums.outputs, frozenset(program.dims))
        if chain is None or not self._is_large(chain, program):
            return False
        return self.fits(sums.kernel, program)

    def _is_large(self, chain: TileChain, program: TensorProgram) -> bool:
        """Whether tiles are larger than their operands and results by that factor."""
        widths = [product(a.extent for a in s.reduce) for s in chain.products]
        widths += [product(a.extent for a in end.columns) for end in chain.ends]
        known = [w for w in widths if isinstance(w, int)]
        if len(known) < len(widths):
            return False

        def exceeds(extent: Index) -> bool:
            least = bounds_of(extent, program.dims).lo
            return not isinstance(extent, int) or (least or 0) > self.share * max(known)

        return exceeds(chain.row.extent) and exceeds(chain.key.extent)

    def _joined(self, found: Sequence[_SummedRows], program: TensorProgram) -> list[_SummedRows]:
        """Sums over the same rows as one."""
        done: list[_SummedRows] = []
        for sums in found:
            for number, other in enumerate(done):
                both = other.with_sums(sums)
                in_time = both is not None and _in_time(both, program)
                if both is not None and in_time and self._worth(both, program):
                    done[number] = both
                    break
            else:
                done.append(sums)
        return done


@dataclass(frozen=True)
class _SummedRows:
    """Kernels that sum rows of the results of ``makers``, all in the order of the program."""

    makers: tuple[Kernel, ...]
    ends: tuple[Kernel, ...]

    @property
    def first(self) -> Kernel:
        """The sum that the fused kernel replaces."""
        return self.ends[0]

    @property
    def outputs(self) -> tuple[str, ...]:
        """The results."""
        return tuple(name for end in self.ends for name in end.outputs)

    @property
    def stages(self) -> tuple[Stage, ...]:
        """All stages that are needed."""
        needed = set(self.outputs)
        kept: list[Stage] = []
        for stage in (s for k in reversed((*self.makers, *self.ends)) for s in reversed(k.stages)):
            if stage.output in needed:
                kept.append(stage)
                needed.update(r.tensor for r in reads(stage.body))
        return tuple(reversed(kept))

    @property
    def kernel(self) -> Kernel:
        """All as one kernel."""
        return fused_kernel((*self.makers, *self.ends), self.stages, self.outputs)

    def with_sums(self, other: _SummedRows) -> _SummedRows | None:
        """Both as one; None if they share no maker."""
        own = {id(k) for k in self.makers}
        more = tuple(k for k in other.makers if id(k) not in own)
        if len(more) == len(other.makers):
            return None
        wider, rest = (self, other) if not more else (other, self)
        if any(id(k) not in {id(m) for m in wider.makers} for k in rest.makers):
            return None
        return _SummedRows(wider.makers, (*self.ends, *other.ends))


def _made_by(tensor: str, makers: Makers, program: TensorProgram) -> tuple[Kernel, ...]:
    """The products that ``tensor`` is made of element by element."""
    shape = _sides(program.types[tensor])
    found: dict[int, Kernel] = {}
    pending = [tensor]
    while pending:
        kernel = makers.makers.get(pending.pop())
        if kernel is None or id(kernel) in found or not kernel.stages[0].reduce:
            continue
        found[id(kernel)] = kernel
        points = [s for s in kernel.stages if not s.reduce]
        read = {r.tensor for s in points for r in reads(s.body)} & set(kernel.inputs)
        pending += sorted(t for t in read if _sides(program.types[t]) == shape)
    return tuple(sorted(found.values(), key=lambda k: makers.place[id(k)]))


def _sides(type: TensorType) -> list[str]:
    """Extents in some order, except those of length 1."""
    return sorted(str(extent) for extent in type.shape if extent != 1)


def _consistent(found: Sequence[_SummedRows], kernels: Sequence[Kernel]) -> list[_SummedRows]:
    """Those whose makers can all be removed, as nothing else reads their results; more than one sum
    of one product."""
    taken = list(found)
    while True:
        inside = {id(k) for sums in taken for k in (*sums.makers, *sums.ends)}
        kept = [s for s in taken if not any(_is_read(m, kernels, inside) for m in s.makers)]
        if len(kept) == len(taken):
            break
        taken = kept
    users = Counter(id(maker) for sums in taken for maker in sums.makers)
    return [s for s in taken if len(s.makers) > 1 or max(users[id(m)] for m in s.makers) > 1]


def _is_read(maker: Kernel, kernels: Sequence[Kernel], inside: set[int]) -> bool:
    """Whether a kernel that is not ``inside`` reads a result of ``maker``."""
    made = set(maker.outputs)
    return any(id(k) not in inside and made.intersection(k.inputs) for k in kernels)


def _in_time(sums: _SummedRows, program: TensorProgram) -> bool:
    """Whether all operands are available before the first result is needed."""
    (first,) = (n for n, item in enumerate(program.items) if item is sums.first)
    later = {name for item in program.items[first:] for name in item_outputs(item)}
    return later.isdisjoint(sums.kernel.inputs)


def _rewritten(program: TensorProgram, taken: Sequence[_SummedRows]) -> TensorProgram:
    """``program`` with such kernels, each with names of its own for its tiles."""
    first = {id(sums.first): sums for sums in taken}
    gone = {id(k) for sums in taken for k in (*sums.makers, *sums.ends)}
    names, types, used = Names(program.types), dict(program.types), set[str]()
    items: list[Item] = []
    for item in program.items:
        if id(item) in first:
            kernel = first[id(item)].kernel
            again = sorted(used.intersection(s.output for s in kernel.stages))
            new = {name: names.fresh(name) for name in again}
            used.update(s.output for s in kernel.stages)
            types |= {new[name]: types[name] for name in again}
            stages = tuple(rename_stage(s, new) for s in kernel.stages)
            items.append(replace(kernel, stages=stages))
        elif id(item) not in gone:
            items.append(item)
    return replace(program, types=types).with_items(tuple(items))
