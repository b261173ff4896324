"""The table of OpenCL C 1.2, whose kernels are printed as any other C."""

from __future__ import annotations

from modelcc.targets.c.dialect import CDialect, GroupDialect

_OPENING = """\
#ifdef cl_khr_fp64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#endif
#pragma OPENCL FP_CONTRACT OFF
typedef char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long int64_t;
typedef uchar uint8_t;
typedef ushort uint16_t;
typedef uint uint32_t;
typedef ulong uint64_t;
#define INT32_MIN INT_MIN
#define INT32_MAX INT_MAX
#define INT64_MIN LONG_MIN
#define INT64_MAX LONG_MAX
#define INT64_C(n) n##L
#define UINT64_C(n) n##UL
#define ceilf ceil
#define fabsf fabs
#define floorf floor
#define nearbyint rint
#define nearbyintf rint
#define sqrtf sqrt
#define truncf trunc
#define memcpy mcc_copy
static inline void mcc_copy(void *to, const void *from, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        ((uchar *)to)[i] = ((const uchar *)from)[i];
}"""
"""Definitions that stdint.h, math.h and string.h have elsewhere."""

_RESERVED = """
bitfield complex constant event_t global half image1d_t image2d_t image3d_t imaginary kernel local
private quad read_only read_write sampler_t size_t ptrdiff_t intptr_t uintptr_t
uchar ushort uint ulong barrier get_group_id get_local_id rint vec_step vector pipe generic
"""

OPENCL = CDialect(
    name="OpenCL C",
    standard="CL1.2",
    vectors=False,
    headers=(),
    inline="static inline",
    alone="",
    unlikely="{}",
    aligned=" __attribute__((aligned({})))",
    unroll="",
    prefetch="",
    note="{} = {};",
    builtin="{}",
    infinity=("(double)INFINITY", "INFINITY"),
    nan=("(double)NAN", "NAN"),
    labels=False,
    groups=GroupDialect(
        kernel="__kernel ",
        size="__attribute__((reqd_work_group_size({},{},{}))) ",
        memory="__global ",
        shared="__local ",
        group=("get_group_id(0)", "get_group_id(1)", "get_group_id(2)"),
        thread=("get_local_id(0)", "get_local_id(1)", "get_local_id(2)"),
        barrier="barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);",
    ),
    opening=_OPENING,
    reserved=frozenset(_RESERVED.split()),
)
"""Groups are work-groups and threads work-items; a function has one lane, as in C99.  Sums of
products are not contracted to FMA."""
