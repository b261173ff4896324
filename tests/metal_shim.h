// What metal_stdlib gives kernels, for a C++ compiler of processors: the threads of a group are
// fibers that take turns at barriers, and its shared memory is static, since one group runs at a time.
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <ucontext.h>

#define device
#define constant const
#define thread
#define threadgroup
#undef INT32_MIN
#undef INT32_MAX
#undef INT64_MIN
#undef INT64_MAX
#undef INT64_C
#undef UINT64_C
#define __METAL_VERSION__ 300
#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")

using half = _Float16;
struct bfloat {
    uint16_t bits;
    operator float() const
    {
        const uint32_t wide = (uint32_t)bits << 16;
        float value;
        __builtin_memcpy(&value, &wide, sizeof value);
        return value;
    }
};
using ulong = uint64_t;
using uint = uint32_t;
using ushort = uint16_t;
struct uint3 {
    uint x, y, z;
};
struct ulong2 {
    ulong x, y;
    ulong2(ulong a, ulong b) : x(a), y(b) {}
};

namespace metal {
namespace precise {
static inline float sqrt(float x) { return __builtin_sqrtf(x); }
}  // namespace precise
static inline float ceil(float x) { return __builtin_ceilf(x); }
static inline float fabs(float x) { return __builtin_fabsf(x); }
static inline float floor(float x) { return __builtin_floorf(x); }
static inline float rint(float x) { return __builtin_rintf(x); }
static inline float trunc(float x) { return __builtin_truncf(x); }

template <typename To, typename From>
static inline To as_type(From from)
{
    static_assert(sizeof(To) == sizeof(From), "as_type keeps the size");
    To to;
    __builtin_memcpy(&to, &from, sizeof to);
    return to;
}

enum class mem_flags { mem_none = 0, mem_device = 1, mem_threadgroup = 2 };
constexpr mem_flags operator|(mem_flags a, mem_flags b) { return mem_flags(int(a) | int(b)); }
}  // namespace metal

namespace shim {
typedef void Body(uint3 group, uint3 thread_, void **buffers);
constexpr size_t MOST = 1024, STACK = 1 << 16, SIMD = 32;
constexpr int DONE = -1, NEXT_GROUP = 0;

struct Fiber {
    ucontext_t context;
    jmp_buf place;
    void *stack;
    bool begun;
    int line;  // where it waits
    long together;  // how often it has worked with the others of its SIMD-group
};
static jmp_buf scheduler;
static Fiber fibers[MOST];
static size_t current;
static Body *body;
static void **buffers;
static uint3 grid, threads;

static void wait_at(int line)
{
    Fiber &own = fibers[current];
    own.line = line;
    if (!_setjmp(own.place))
        _longjmp(scheduler, 1);
}

static uint3 thread_of(uint n)
{
    return uint3{n % threads.x, n / threads.x % threads.y, n / threads.x / threads.y};
}

// All groups, as one of their threads.
static void start()
{
    const uint3 own = thread_of((uint)current);
    for (uint z = 0; z < grid.z; z++)
        for (uint y = 0; y < grid.y; y++)
            for (uint x = 0; x < grid.x; x++) {
                body(uint3{x, y, z}, own, buffers);
                wait_at(NEXT_GROUP);
            }
    wait_at(DONE);
}

static void run_until_waiting(Fiber &fiber)
{
    if (_setjmp(scheduler))
        return;
    if (fiber.begun)
        _longjmp(fiber.place, 1);
    fiber.begun = true;
    setcontext(&fiber.context);
}

static void prepare(size_t count)
{
    for (size_t n = 0; n < count; n++) {
        Fiber &fiber = fibers[n];
        if (!fiber.stack)
            fiber.stack = malloc(STACK);
        getcontext(&fiber.context);
        fiber.context.uc_stack.ss_sp = fiber.stack;
        fiber.context.uc_stack.ss_size = STACK;
        makecontext(&fiber.context, start, 0);
        fiber.begun = false;
        fiber.together = 0;
    }
}

// Every thread of a group up to its next barrier, until all are done; whether they wait at the same
// barriers, and those of a SIMD-group do the same together.
static bool run_in_turns(size_t count)
{
    prepare(count);
    do {
        for (current = 0; current < count; current++) {
            run_until_waiting(fibers[current]);
            const Fiber &own = fibers[current], &first = fibers[current / SIMD * SIMD];
            if (own.line != fibers[0].line || own.together != first.together)
                return false;
        }
    } while (fibers[0].line != DONE);
    return true;
}

static void run_alone(size_t count)
{
    for (uint z = 0; z < grid.z; z++)
        for (uint y = 0; y < grid.y; y++)
            for (uint x = 0; x < grid.x; x++)
                for (uint n = 0; n < count; n++)
                    body(uint3{x, y, z}, thread_of(n), buffers);
}

static int launch(Body *kernel, int waits, void **memory, const uint *groups, const uint *size)
{
    body = kernel, buffers = memory;
    grid = uint3{groups[0], groups[1], groups[2]};
    threads = uint3{size[0], size[1], size[2]};
    const size_t count = (size_t)threads.x * threads.y * threads.z;
    if (waits)
        return run_in_turns(count);
    run_alone(count);
    return 1;
}
}  // namespace shim

namespace metal {
static inline void threadgroup_barrier(mem_flags, int line = __builtin_LINE())
{
    shim::wait_at(line);
}

// The first thread of a SIMD-group has all elements, and does for all.
template <typename T, int C, int R>
struct simdgroup_matrix {
    T elements[R][C];
};

static inline bool is_first()
{
    shim::fibers[shim::current].together++;
    return shim::current % shim::SIMD == 0;
}

template <typename T, int C, int R>
static simdgroup_matrix<T, C, R> make_filled_simdgroup_matrix(T value)
{
    simdgroup_matrix<T, C, R> made;
    if (is_first())
        for (int r = 0; r < R; r++)
            for (int c = 0; c < C; c++)
                made.elements[r][c] = value;
    return made;
}

template <typename T, int C, int R>
static void simdgroup_load(simdgroup_matrix<T, C, R> &to, const T *source, ulong stride,
                           ulong2 origin = ulong2(0, 0), bool transposed = false)
{
    if (!is_first())
        return;
    source += origin.y * stride + origin.x;
    for (int r = 0; r < R; r++)
        for (int c = 0; c < C; c++)
            to.elements[r][c] = transposed ? source[c * stride + r] : source[r * stride + c];
}

template <typename T, int C, int R>
static void simdgroup_store(const simdgroup_matrix<T, C, R> &from, T *to, ulong stride)
{
    if (!is_first())
        return;
    for (int r = 0; r < R; r++)
        for (int c = 0; c < C; c++)
            to[r * stride + c] = from.elements[r][c];
}

template <typename S, typename T>
__attribute__((optimize("O3"))) static void simdgroup_multiply_accumulate(simdgroup_matrix<S, 8, 8> &to,
                                          const simdgroup_matrix<T, 8, 8> &a,
                                          const simdgroup_matrix<T, 8, 8> &b,
                                          const simdgroup_matrix<S, 8, 8> &sums)
{
    if (!is_first())
        return;
    simdgroup_matrix<S, 8, 8> made = sums;
    for (int r = 0; r < 8; r++)
        for (int k = 0; k < 8; k++)
            for (int c = 0; c < 8; c++)
                made.elements[r][c] += (S)a.elements[r][k] * (S)b.elements[k][c];
    to = made;
}
}  // namespace metal
