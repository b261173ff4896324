"""Functions of groups as shaders in WGSL, each a module of its own.

``func @relu(%x: f32[n], %y: mut f32[n]; n)`` becomes::

    @group(0) @binding(0) var<storage, read_write> x: array<f32>;
    @group(0) @binding(1) var<storage, read_write> y: array<f32>;
    struct mcc_Sizes { n: i32, }
    @group(0) @binding(2) var<uniform> mcc_sizes: mcc_Sizes;
    @compute @workgroup_size(64, 1, 1)
    fn main(@builtin(workgroup_id) mcc_group: vec3<u32>, …)

All memory may be written as far as the language is concerned: within a launch, a buffer is written
or read, and tensors share one.  Parameters that alias in a launch have one binding, as WebGPU
forbids writable bindings that alias.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from modelcc.ir.index import Range
from modelcc.ir.loop import Buffer, Function
from modelcc.ir.loop_group_verifier import GroupLimits
from modelcc.ir.loop_traversal import FAULTS, checks_in, grid_loop, launch_extents
from modelcc.ir.loop_verifier import verify_function
from modelcc.ir.types import U32
from modelcc.passes.loop.expand_instructions import expand_instructions
from modelcc.passes.loop.expand_math import expand_math
from modelcc.passes.loop.expand_narrow import expand_narrow
from modelcc.passes.loop.remove_unused import remove_unused
from modelcc.runtime.devices.webgpu_shaders import Shader, Shared
from modelcc.targets.c.code import Code
from modelcc.targets.c.dialect import C99
from modelcc.targets.c.names import comment
from modelcc.targets.webgpu.cancellation import cancelled
from modelcc.targets.webgpu.library import library_of
from modelcc.targets.webgpu.memory import ShaderMemory, bound_room
from modelcc.targets.webgpu.pieces import pieces_named
from modelcc.targets.webgpu.statements import StatementCode

LIMITS = GroupLimits(shared_bytes=16384, threads=256)
"""Limits of a group that every implementation guarantees."""

BINDING_BYTES = 128 << 20
"""Bytes of a binding that every implementation guarantees."""

BINDINGS = 8
"""Storage buffers of a shader that every implementation guarantees."""

NOTHING = "mcc_nothing"
"""A zero that compilers do not know: launches have no third dimension."""


_KEYWORDS = """
alias break case const const_assert continue continuing default diagnostic discard else enable false
fn for if let loop override requires return struct switch true var while
"""
_RESERVED = """
NULL Self abstract active alignas alignof as asm asm_fragment async attribute auto await become
cast catch class co_await co_return co_yield coherent column_major common compile
compile_fragment concept const_cast consteval constexpr constinit crate debugger decltype delete
demote demote_to_helper do dynamic_cast enum explicit export extends extern external fallthrough
filter final finally friend from fxgroup get goto groupshared highp impl implements import inline
instanceof interface layout lowp macro macro_rules match mediump meta mod module move mut mutable
namespace new nil noexcept noinline nointerpolation non_coherent noncoherent noperspective null
nullptr of operator package packoffset partial pass patch pixelfragment precise precision premerge
priv protected pub public readonly ref regardless register reinterpret_cast require resource
restrict self set shared sizeof smooth snorm static static_assert static_cast std subroutine super
target template this thread_local throw trait try type typedef typeid typename typeof union unless
unorm unsafe unsized use using varying virtual volatile wgsl where with writeonly yield
"""
_TYPES = """
array atomic bool f16 f32 i32 u32 mat2x2 mat2x3 mat2x4 mat3x2 mat3x3 mat3x4 mat4x2 mat4x3 mat4x4 ptr
sampler vec2 vec3 vec4 vec2i vec2u vec2f function private read read_write storage uniform workgroup
write
"""
_FUNCTIONS = """
abs acos acosh all any asin asinh atan atan2 atanh bitcast ceil clamp cos cosh countLeadingZeros
countOneBits countTrailingZeros cross degrees determinant distance dot exp exp2 extractBits
faceForward firstLeadingBit firstTrailingBit floor fma fract frexp insertBits inverseSqrt ldexp
length log log2 max min mix modf normalize pow quantizeToF16 radians reflect refract reverseBits
round saturate select sign sin sinh smoothstep sqrt step tan tanh transpose trunc atomicAnd atomicOr
atomicLoad atomicStore storageBarrier workgroupBarrier workgroupUniformLoad main shift bits
"""

WGSL = replace(
    C99,
    name="WGSL",
    index="i32",
    reserved=frozenset(" ".join((_KEYWORDS, _RESERVED, _TYPES, _FUNCTIONS)).split()),
)
"""Not a dialect of C, but printed with C's layout."""


def plain_function(function: Function) -> Function:
    """A function in the constructs that are printed."""
    return remove_unused(
        expand_instructions(expand_math(expand_narrow(function), arrays=False), {})
    )


def apart(function: Function) -> Shared:
    """Each parameter with a binding of its own."""
    return tuple((number,) for number in range(len(function.parameters)))


def shader_of(
    function: Function, shared: Shared | None = None, piece_bytes: int = BINDING_BYTES
) -> Shader:
    """The shader of any function of groups, as :func:`plain_function` leaves it.

    Raises as :func:`verified_shader`, and :class:`ModelError` if a group is too large.
    """
    if grid_loop(function) is None:
        raise NotImplementedError(f"WGSL has kernels only, but @{function.name} has no grid")
    verify_function(function, LIMITS)
    return verified_shader(function, shared, piece_bytes)


def verified_shader(
    function: Function, shared: Shared | None = None, piece_bytes: int = BINDING_BYTES
) -> Shader:
    """The shader of a verified function, within :data:`LIMITS`; memory of more than
    ``piece_bytes``, for constant sizes, is bound in several pieces.

    Raises ``NotImplementedError`` or ``TypeError`` for what WGSL cannot express.
    """
    bindings = shared or apart(function)
    code, rooms = Code(WGSL), dict[str, ShaderMemory]()
    pieces = [_pieces(function, places, piece_bytes) for places in bindings]
    head = _bound(code, function, zip(bindings, pieces, strict=True), rooms, piece_bytes)
    functions = [text for room in rooms.values() for text in _piecewise(room)]
    faults = 4 * checks_in(function)
    if faults:
        room = ShaderMemory(code.fresh("faults"), Buffer(FAULTS, U32, faults), "u32", atomic=True)
        rooms[FAULTS] = room
        head.append(_variable(len(head), room))
    if len(head) > BINDINGS:
        raise NotImplementedError(
            f"@{function.name} takes {len(head)} buffers, and WebGPU gives {BINDINGS}"
        )
    head += _sizes(code, function, len(head))
    declared: list[str] = []
    StatementCode(code, rooms, declared, cancelled(function.body)).block(function.body)
    library = library_of(code.lines)
    hidden = ["    mcc_nothing = mcc_group.z;"] if any(NOTHING in t for t in library) else []
    grid, threads = launch_extents(function)
    size = ", ".join(map(str, (*threads, *(1 for _ in range(3 - len(threads))))))
    main = (
        f"@compute @workgroup_size({size})\n"
        "fn main(@builtin(workgroup_id) mcc_group: vec3<u32>,\n"
        "        @builtin(local_invocation_id) mcc_thread: vec3<u32>) {"
    )
    notes = [f"/* {comment(', '.join(function.source))} */"] if function.source else []
    body = "\n".join([*notes, main, *hidden, *code.lines, "}"])
    text = "\n".join([*head, *declared, *library, *dict.fromkeys(functions), body]) + "\n"
    buffers = [p.buffer for p in function.parameters]
    return Shader(
        function.name, bindings, tuple(pieces), piece_bytes, function.sizes,
        tuple(b.size for b in buffers),
        tuple(b.dtype.bytes for b in buffers), grid, faults, text,
    )  # fmt: skip


def _pieces(function: Function, places: Sequence[int], piece_bytes: int) -> int:
    """The number of pieces of the parameters' memory; one for sizes that are not constants."""
    buffers = [function.parameters[place].buffer for place in places]
    sizes = [b.size * b.dtype.bytes for b in buffers]
    return max([1, *(-(-size // piece_bytes) for size in sizes if isinstance(size, int))])


def _bound(
    code: Code,
    function: Function,
    bindings: Iterable[tuple[tuple[int, ...], int]],
    rooms: dict[str, ShaderMemory],
    piece_bytes: int,
) -> list[str]:
    """Declarations of the parameters' memory, in the given number of pieces each."""
    lines: list[str] = []
    for together, count in bindings:
        parameters = [function.parameters[place] for place in together]
        name = code.fresh(parameters[0].buffer.name)
        buffers = tuple(p.buffer for p in parameters)
        mutable = any(p.mutable for p in parameters)
        for buffer in buffers:
            rooms[buffer.name] = bound_room(name, buffer, buffers, mutable)
        room, names = rooms[buffers[0].name], (name,)
        if count > 1:
            length = piece_bytes // max(4, buffers[0].dtype.bytes)
            pieces = pieces_named(code, name, count, length)
            rooms |= {b.name: replace(rooms[b.name], pieces=pieces) for b in buffers}
            names = pieces.names
        for own in names:
            lines.append(_variable(len(lines), replace(room, name=own)))
    return lines


def _piecewise(room: ShaderMemory) -> Iterator[str]:
    """Functions that load and store elements of memory in pieces."""
    if room.pieces is not None:
        yield room.pieces.loader(room.element, room.atomic)
        yield room.pieces.storer(room.element, room.atomic)


def _variable(number: int, room: ShaderMemory) -> str:
    type_ = f"array<{room.type}>"
    return f"@group(0) @binding({number}) var<storage, read_write> {room.name}: {type_};"


def _sizes(code: Code, function: Function, number: int) -> list[str]:
    """A declaration of the sizes, which become names of the function."""
    names: list[str] = []
    for size in function.sizes:
        names.append(code.fresh(size))
        code.scope.symbols[size] = names[-1]
        code.scope.bounds[size] = Range(0, None)
        code.line(f"let {names[-1]} = mcc_sizes.{names[-1]};")
    if not names:
        return []
    fields = " ".join(f"{name}: i32," for name in names)
    return [
        f"struct mcc_Sizes {{ {fields} }}",
        f"@group(0) @binding({number}) var<uniform> mcc_sizes: mcc_Sizes;",
    ]
