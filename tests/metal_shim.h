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
#define threadgroup static
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
using uint = uint32_t;
using ushort = uint16_t;
struct uint3 {
    uint x, y, z;
};

namespace metal {
namespace precise {
static inline float ceil(float x) { return __builtin_ceilf(x); }
static inline float fabs(float x) { return __builtin_fabsf(x); }
static inline float floor(float x) { return __builtin_floorf(x); }
static inline float rint(float x) { return __builtin_rintf(x); }
static inline float sqrt(float x) { return __builtin_sqrtf(x); }
static inline float trunc(float x) { return __builtin_truncf(x); }
}  // namespace precise

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
constexpr size_t MOST = 1024, STACK = 1 << 16;
constexpr int DONE = -1, NEXT_GROUP = 0;

struct Fiber {
    ucontext_t context;
    jmp_buf place;
    void *stack;
    bool begun;
    int line;  // where it waits
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
    }
}

// Every thread of a group up to its next barrier, until all are done; whether they wait at the same
// barriers.
static bool run_in_turns(size_t count)
{
    prepare(count);
    do {
        for (current = 0; current < count; current++) {
            run_until_waiting(fibers[current]);
            if (fibers[current].line != fibers[0].line)
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
}  // namespace metal
