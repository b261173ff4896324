"""The table of Metal's shading language, whose kernels are printed as any other C."""

from __future__ import annotations

from modelcc.targets.c.dialect import CDialect, GroupDialect

_OPENING = """\
#pragma METAL fp math_mode(safe)
#pragma METAL fp contract(off)
using namespace metal;
#define restrict __restrict
#define INT32_MIN (-2147483647 - 1)
#define INT32_MAX 2147483647
#define INT64_MIN (-9223372036854775807L - 1)
#define INT64_MAX 9223372036854775807L
#define INT64_C(n) n##L
#define UINT64_C(n) n##UL
#define ceilf metal::ceil
#define fabsf metal::fabs
#define floorf metal::floor
#define nearbyintf metal::rint
#define sqrtf metal::precise::sqrt
#define truncf metal::trunc
#define memcpy mcc_copy
template <typename To, typename From>
static inline void mcc_copy(thread To *to, const thread From *from, size_t)
{
    *to = as_type<To>(*from);
}"""
"""Definitions that stdint.h, math.h and string.h have elsewhere.  Of the functions, only the square
root is rounded as the math mode says."""

_RESERVED = """
alignas alignof and and_eq asm bitand bitor catch char16_t char32_t class compl const_cast constexpr
decltype delete dynamic_cast explicit export friend mutable namespace new noexcept not not_eq
nullptr operator or or_eq private protected public reinterpret_cast static_assert static_cast
template this thread_local throw try typeid typename using virtual wchar_t xor xor_eq
kernel vertex fragment visible stitchable intersection object mesh device constant thread
threadgroup threadgroup_imageblock object_data ray_data access as_type main metal precise fast
half bfloat simdgroup_matrix simdgroup_load simdgroup_store simdgroup_multiply_accumulate ulong2
make_filled_simdgroup_matrix uchar ushort uint ulong size_t ptrdiff_t texture sampler array atomic
simd abs min max clamp select any all isnan isinf mem_flags threadgroup_barrier uint3
mcc_group mcc_thread restrict
"""

METAL = CDialect(
    name="Metal",
    standard="metal3.0",
    vectors=False,
    headers=("metal_stdlib",),
    inline="static inline",
    alone="",
    unlikely="{}",
    aligned="",
    unroll="#pragma unroll {}",
    prefetch="",
    note="{} = {};",
    builtin="{}",
    infinity=("INFINITY", "INFINITY"),
    nan=("NAN", "NAN"),
    labels=False,
    groups=GroupDialect(
        kernel="[[kernel, ",
        size="max_total_threads_per_threadgroup({} * {} * {})]] ",
        memory="device ",
        shared="threadgroup ",
        group=("mcc_group.x", "mcc_group.y", "mcc_group.z"),
        thread=("mcc_thread.x", "mcc_thread.y", "mcc_thread.z"),
        barrier="threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);",
        numbered="{} [[buffer({})]]",
        given="constant {} &{}",
        indices=(
            "uint3 mcc_group [[threadgroup_position_in_grid]]",
            "uint3 mcc_thread [[thread_position_in_threadgroup]]",
        ),
        matrices=True,
    ),
    opening=_OPENING,
    reserved=frozenset(_RESERVED.split()),
    halves=(
        ("f16_f32", "return float(as_type<half>(h));"),
        ("f32_f16", "return as_type<uint16_t>(half(a));"),
        ("bf16_f32", "return as_type<float>((uint32_t)h << 16);"),
    ),
)
"""Groups are threadgroups; a function has one lane, as in C99.  Sums of products are not contracted
to FMA where the compiler has the pragmas, and there are no doubles."""
