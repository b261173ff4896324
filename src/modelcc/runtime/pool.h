/* A small thread pool: static partition, fork-join, one parallel region at a time. */
#ifndef MCC_POOL_H
#define MCC_POOL_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mcc_pool;

/* Runs the iterations [begin, end); `thread` is below the pool's number of threads, and no two
   calls of one mcc_parallel_for have the same. */
typedef void mcc_body(void *ctx, int64_t begin, int64_t end, int32_t thread);

/* A pool of `threads` threads, the caller's among them; NULL if the system refuses. */
struct mcc_pool *mcc_pool_create(int32_t threads);

/* Waits for a running mcc_parallel_for, then ends the threads. */
void mcc_pool_destroy(struct mcc_pool *pool);

/* Calls `body` on contiguous pieces of [0, extent), at most one for each thread, which meet at
   multiples of `grain`, and returns when all have ended. Everything runs in the calling thread
   if the pool is busy (another caller, or a call from within `body`) or in a forked child. */
void mcc_parallel_for(struct mcc_pool *pool, mcc_body *body, void *ctx, int64_t extent,
                      int64_t grain);

#ifdef __cplusplus
}
#endif
#endif
