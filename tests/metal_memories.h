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
typedef unsigned long ulong;
typedef _Float16 half;
struct bfloat {
    uint16_t bits;
};
struct uint3 {
    uint x, y, z;
};
struct ulong2 {
    ulong2(ulong, ulong);
};

#define device __attribute__((address_space(1)))
#define constant __attribute__((address_space(2))) const
#define threadgroup __attribute__((address_space(3)))
#define thread
#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")

namespace metal {
namespace precise {
float sqrt(float);
}  // namespace precise
float ceil(float);
float fabs(float);
float floor(float);
float rint(float);
float trunc(float);

template <typename To, typename From>
To as_type(From);

enum class mem_flags { mem_none = 0, mem_device = 1, mem_threadgroup = 2 };
constexpr mem_flags operator|(mem_flags a, mem_flags b) { return mem_flags(int(a) | int(b)); }
void threadgroup_barrier(mem_flags);

template <typename T, int C, int R>
struct simdgroup_matrix {};
template <typename T, int C, int R>
simdgroup_matrix<T, C, R> make_filled_simdgroup_matrix(T);
template <typename T, int C, int R>
void simdgroup_load(simdgroup_matrix<T, C, R> &, const threadgroup T *, ulong,
                    ulong2 = ulong2(0, 0), bool = false);
template <typename T, int C, int R>
void simdgroup_store(simdgroup_matrix<T, C, R>, threadgroup T *, ulong);
template <typename S, typename T>
void simdgroup_multiply_accumulate(simdgroup_matrix<S, 8, 8> &, simdgroup_matrix<T, 8, 8>,
                                   simdgroup_matrix<T, 8, 8>, simdgroup_matrix<S, 8, 8>);
}  // namespace metal
