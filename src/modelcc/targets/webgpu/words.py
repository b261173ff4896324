"""What WGSL calls its own, as a table for the text under construction."""

from __future__ import annotations

from dataclasses import replace

from modelcc.targets.c.dialect import C99

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
"""No dialect of C, but its text is laid out as C is."""
