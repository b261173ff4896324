// What metal_stdlib gives kernels, for a C++ compiler of processors: the threads of a group are
// fibers that take turns at barriers, and its shared memory is static, since one group runs at a time.
#include <ucontext.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

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
struct Fiber {
    ucontext_t context;
    std::vector<char> stack;
    bool done;
};
static ucontext_t scheduler;
static std::vector<Fiber> fibers;
static size_t current;
static void (*body)(uint3, uint3, void **, const int64_t *);
static void **buffers;
static const int64_t *sizes;
static uint3 group, threads;

static void start()
{
    const uint n = (uint)current;
    body(group, uint3{n % threads.x, n / threads.x % threads.y, n / threads.x / threads.y},
         buffers, sizes);
    fibers[current].done = true;
    swapcontext(&fibers[current].context, &scheduler);
}

// Every thread of a group up to its next barrier, until all are done.
static void run_group()
{
    for (Fiber &fiber : fibers) {
        getcontext(&fiber.context);
        fiber.context.uc_stack.ss_sp = fiber.stack.data();
        fiber.context.uc_stack.ss_size = fiber.stack.size();
        makecontext(&fiber.context, start, 0);
        fiber.done = false;
    }
    for (bool some = true; some;) {
        some = false;
        for (current = 0; current < fibers.size(); current++)
            if (!fibers[current].done) {
                swapcontext(&scheduler, &fibers[current].context);
                some |= !fibers[current].done;
            }
    }
}

static void launch(decltype(body) kernel, void **memory, const int64_t *numbers,
                   const int64_t *grid, const int64_t *size)
{
    body = kernel, buffers = memory, sizes = numbers;
    threads = uint3{(uint)size[0], (uint)size[1], (uint)size[2]};
    fibers.clear();
    for (int64_t n = size[0] * size[1] * size[2]; n > 0; n--)
        fibers.push_back(Fiber{{}, std::vector<char>(16384), false});
    for (uint z = 0; z < grid[2]; z++)
        for (uint y = 0; y < grid[1]; y++)
            for (uint x = 0; x < grid[0]; x++) {
                group = uint3{x, y, z};
                run_group();
            }
}
}  // namespace shim

namespace metal {
static inline void threadgroup_barrier(mem_flags)
{
    const size_t own = shim::current;
    swapcontext(&shim::fibers[own].context, &shim::scheduler);
}
}  // namespace metal
