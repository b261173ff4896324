/* The thread pool of pool.h for Linux.

   A job is published by one store of `ticket`: a number that differs from the last one, and how
   many threads take part. Workers spin on it for a while, then sleep in the kernel (Franke,
   Russell, Kirkwood: Fuss, Futexes and Furwocks, 2002): long enough that a worker is still awake
   when the caller comes back from serial work, since waking it takes as long as a small model.

   Each worker has a piece of its own, whose data its cache may hold, but must claim it. When the
   caller is done with its own piece, it claims those of workers that have not come: one that is
   asleep, or whose core is taken by another program, holds nobody up. A worker reads the job only
   after it has claimed, so the caller may write the next one as soon as `pending` is zero.

   A system whose cores are busy may wake a worker on the caller's core, where it only ever runs in
   the caller's place. A worker that has come too late looks whether it is there, and goes away.

   The pool lies in pages that are zeroed in a forked child: there it has no threads, and all
   calls run in the calling thread. */
#define _GNU_SOURCE
#include "pool.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

enum { SPINS = 16384, STOP = -1, PAGE = 4096 };

struct worker {
    struct mcc_pool *pool;
    pthread_t thread;
    int32_t index;

    _Alignas(64) _Atomic int64_t claim; /* ticket of a job whose piece is free, else 0 */
};

struct mcc_pool {
    int32_t threads; /* the caller's among them; 0 in a forked child */
    int64_t bytes;

    _Alignas(64) atomic_int busy;

    _Alignas(64) _Atomic int64_t ticket; /* low half: number, a futex; high half: threads */
    atomic_int sleepers;
    mcc_body *body;
    void *ctx;
    int64_t extent;
    int64_t grain;

    _Alignas(64) atomic_int pending; /* threads that have not ended yet, a futex */
    atomic_int waiting;
    atomic_int home; /* the core of a caller that has not met all workers */

    _Alignas(64) struct worker workers[];
};

/* On AArch64, ISB waits for about as long as PAUSE of x86-64 does; YIELD is a NOP on most cores. */
static void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__) && defined(__clang__)
    __builtin_arm_isb(15);
#elif defined(__aarch64__)
    __asm__ volatile("isb");
#endif
}

/* The low half of `word` on a little-endian machine. */
static void futex_wait(void *word, int32_t value) {
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, (void *)0);
}

static void futex_wake(void *word) { syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX); }

static int64_t next_ticket(struct mcc_pool *pool, int64_t last) {
    int64_t ticket;
    for (int i = 0; i < SPINS; i++) {
        ticket = atomic_load_explicit(&pool->ticket, memory_order_acquire);
        if (ticket != last) return ticket;
        relax();
    }
    atomic_fetch_add(&pool->sleepers, 1);
    while ((ticket = atomic_load(&pool->ticket)) == last)
        futex_wait(&pool->ticket, (int32_t)last);
    atomic_fetch_sub(&pool->sleepers, 1);
    return ticket;
}

static int64_t publish(struct mcc_pool *pool, int32_t threads) {
    int64_t last = atomic_load_explicit(&pool->ticket, memory_order_relaxed);
    uint32_t number = (uint32_t)last + 1;
    int64_t ticket = (int64_t)((uint64_t)(uint32_t)threads << 32 | number);
    for (int32_t i = 1; i < threads; i++)
        atomic_store_explicit(&pool->workers[i].claim, ticket, memory_order_relaxed);
    atomic_store(&pool->ticket, ticket);
    if (atomic_load(&pool->sleepers)) futex_wake(&pool->ticket);
    return ticket;
}

static int claim(struct worker *worker, int64_t ticket) {
    return atomic_load_explicit(&worker->claim, memory_order_relaxed) == ticket &&
           atomic_compare_exchange_strong(&worker->claim, &ticket, 0);
}

static void run_piece(struct mcc_pool *pool, int32_t index, int32_t threads) {
    int64_t units = (pool->extent - 1) / pool->grain + 1;
    int64_t begin = units * index / threads * pool->grain;
    int64_t end = units * (index + 1) / threads * pool->grain;
    if (end > pool->extent) end = pool->extent;
    pool->body(pool->ctx, begin, end, index);
}

/* Leaves the caller's core to the caller, if the thread may use any other. */
static void make_way(struct mcc_pool *pool, const cpu_set_t *allowed) {
    int home = atomic_load_explicit(&pool->home, memory_order_relaxed);
    int core = sched_getcpu();
    if (core != home || (unsigned)core >= CPU_SETSIZE) return;
    cpu_set_t others = *allowed;
    CPU_CLR(core, &others);
    sched_setaffinity(0, sizeof others, &others);
}

static void *work(void *argument) {
    struct worker *worker = argument;
    struct mcc_pool *pool = worker->pool;
    int64_t ticket = 0;
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    sched_getaffinity(0, sizeof allowed, &allowed);
    for (;;) {
        ticket = next_ticket(pool, ticket);
        int32_t threads = (int32_t)(ticket >> 32);
        if (threads == STOP) return 0;
        if (worker->index >= threads) continue;
        if (!claim(worker, ticket)) {
            make_way(pool, &allowed);
            continue;
        }
        run_piece(pool, worker->index, threads);
        if (atomic_fetch_sub(&pool->pending, 1) == 1 && atomic_load(&pool->waiting))
            futex_wake(&pool->pending);
    }
}

/* Runs the pieces of workers that have not come. */
static void run_rest(struct mcc_pool *pool, int64_t ticket, int32_t threads) {
    for (int32_t i = 1; i < threads; i++) {
        if (!atomic_load_explicit(&pool->pending, memory_order_acquire)) return;
        if (!claim(&pool->workers[i], ticket)) continue;
        atomic_store_explicit(&pool->home, sched_getcpu(), memory_order_relaxed);
        run_piece(pool, i, threads);
        atomic_fetch_sub(&pool->pending, 1);
    }
}

static void wait_for_workers(struct mcc_pool *pool) {
    int pending;
    for (int i = 0; i < SPINS; i++) {
        if (!atomic_load_explicit(&pool->pending, memory_order_acquire)) return;
        relax();
    }
    atomic_store(&pool->waiting, 1);
    while ((pending = atomic_load(&pool->pending))) futex_wait(&pool->pending, pending);
    atomic_store_explicit(&pool->waiting, 0, memory_order_relaxed);
}

void mcc_parallel_for(struct mcc_pool *pool, mcc_body *body, void *ctx, int64_t extent,
                      int64_t grain) {
    if (extent <= 0) return;
    if (grain < 1) grain = 1;
    int64_t units = (extent - 1) / grain + 1;
    int32_t threads = units < pool->threads ? (int32_t)units : pool->threads;
    if (threads <= 1 || atomic_exchange_explicit(&pool->busy, 1, memory_order_acquire)) {
        body(ctx, 0, extent, 0);
        return;
    }
    pool->body = body;
    pool->ctx = ctx;
    pool->extent = extent;
    pool->grain = grain;
    atomic_store_explicit(&pool->pending, threads - 1, memory_order_relaxed);
    int64_t ticket = publish(pool, threads);
    run_piece(pool, 0, threads);
    run_rest(pool, ticket, threads);
    wait_for_workers(pool);
    atomic_store_explicit(&pool->busy, 0, memory_order_release);
}

/* Workers run with all signals blocked: signals are the program's business. */
static int32_t start_workers(struct mcc_pool *pool, int32_t threads) {
    sigset_t all, old;
    int32_t started = 1;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    for (; started < threads; started++) {
        struct worker *worker = &pool->workers[started];
        worker->pool = pool;
        worker->index = started;
        if (pthread_create(&worker->thread, 0, work, worker)) break;
    }
    pthread_sigmask(SIG_SETMASK, &old, 0);
    return started;
}

struct mcc_pool *mcc_pool_create(int32_t threads) {
    if (threads < 1) threads = 1;
    int64_t bytes = sizeof(struct mcc_pool) + threads * (int64_t)sizeof(struct worker);
    bytes = (bytes + PAGE - 1) / PAGE * PAGE;
    struct mcc_pool *pool =
        mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pool == MAP_FAILED) return 0;
    if (madvise(pool, bytes, MADV_WIPEONFORK)) {
        munmap(pool, bytes);
        return 0;
    }
    pool->bytes = bytes;
    pool->threads = start_workers(pool, threads);
    if (pool->threads == threads) return pool;
    mcc_pool_destroy(pool);
    return 0;
}

void mcc_pool_destroy(struct mcc_pool *pool) {
    if (!pool->bytes) return; /* in a forked child: the pages may serve other uses by now */
    while (atomic_exchange_explicit(&pool->busy, 1, memory_order_acquire)) sched_yield();
    publish(pool, STOP);
    for (int32_t i = 1; i < pool->threads; i++) pthread_join(pool->workers[i].thread, 0);
    munmap(pool, pool->bytes);
}
