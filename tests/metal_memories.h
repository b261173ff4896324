// Metal's memories as clang's address spaces: what compiles with these never takes a pointer into one
// memory for one into another.  Nothing here runs.
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long uint64_t;
typedef unsigned long size_t;
typedef unsigned int uint;
typedef _Float16 half;
struct uint3 {
    uint x, y, z;
};

#define device __attribute__((address_space(1)))
#define constant __attribute__((address_space(2))) const
#define threadgroup static __attribute__((address_space(3)))
#define thread
#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")

namespace metal {
namespace precise {
float ceil(float);
float fabs(float);
float floor(float);
float rint(float);
float sqrt(float);
float trunc(float);
}  // namespace precise

template <typename To, typename From>
To as_type(From);

enum class mem_flags { mem_none = 0, mem_device = 1, mem_threadgroup = 2 };
constexpr mem_flags operator|(mem_flags a, mem_flags b) { return mem_flags(int(a) | int(b)); }
void threadgroup_barrier(mem_flags);
}  // namespace metal
