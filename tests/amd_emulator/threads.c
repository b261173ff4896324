/* Threads of a group of a GPU of AMD's, one after the other on a processor: each has a stack of its
   own, and goes on until it waits for others.

   What a wave does together is done when nobody of it can go on by itself, for those at the place
   that stands first in the text; a group's barrier is passed when all its threads stand at the same
   one.  Registers of matrix instructions are laid out as AMD's calculator prints them
   (github.com/ROCm/amd_matrix_instruction_calculator at 2ef91896, --detail-instruction): of a thread
   A i, B j and D j are lane % 16, D i is 4 (lane / 16) + GPR, and k goes through a thread's own terms
   from (lane / 16) times their number on.  Those of gfx950 with twice the terms are laid out likewise
   (ROCm/composable_kernel, mfma_type in include/ck/tensor_operation/gpu/warp/xdlops_gemm.hpp). */

#define _GNU_SOURCE
#include <math.h>
#include <setjmp.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

/* WAVE is the threads of those waves that have matrix instructions. */
enum { WAVE = 64, MOST = 1024, STACK = 1 << 18, PAGE = 1 << 12 };
enum state { RUNS, BARRIER, EXCHANGE, PRODUCT, ENDED };
enum fault { NONE, STRAY, UNALIGNED, ALONE, UNEVEN, STUCK };
enum element { F32, F16, BF16, I8, E4M3, E5M2 };

typedef struct {
    enum state state;
    int started;
    uint32_t site, given, from, found;
    enum element element;
    int own;
    const void *a, *b;
    void *c;
    jmp_buf at;
} thread;

typedef struct {
    uint64_t first, size;
} range;

typedef void entry(void **);

static thread threads[MOST];
static char *stacks;
static int now, count, wave_size, fault, faulty;
static uint32_t thread_at[3], group_at[3], extents[3];
static jmp_buf back;
static entry *code;
static void **arguments;
static const range *ranges;
static int known, last;

static void start(void) {
    code(arguments);
    threads[now].state = ENDED;
    _longjmp(back, 1);
}

static void wait_for(enum state state, uint32_t site) {
    threads[now].state = state;
    threads[now].site = site;
    if (!_setjmp(threads[now].at)) _longjmp(back, 1);
}

static void fail(enum fault what, uint32_t site) {
    fault = what;
    faulty = (int)site;
    _longjmp(back, 1);
}

static void resume(int number) {
    thread *one = &threads[number];
    now = number;
    thread_at[0] = number % extents[0];
    thread_at[1] = number / extents[0] % extents[1];
    thread_at[2] = number / (extents[0] * extents[1]);
    if (_setjmp(back)) return;
    if (one->started) _longjmp(one->at, 1);
    one->started = 1;
    ucontext_t fresh;
    getcontext(&fresh);
    fresh.uc_stack.ss_sp = stacks + (size_t)number * STACK;
    fresh.uc_stack.ss_size = STACK;
    fresh.uc_link = NULL;
    makecontext(&fresh, start, 0);
    setcontext(&fresh);
}

/* --- what kernels call */

uint32_t amd_workitem_id_x(void) { return thread_at[0]; }
uint32_t amd_workitem_id_y(void) { return thread_at[1]; }
uint32_t amd_workitem_id_z(void) { return thread_at[2]; }
uint32_t amd_workgroup_id_x(void) { return group_at[0]; }
uint32_t amd_workgroup_id_y(void) { return group_at[1]; }
uint32_t amd_workgroup_id_z(void) { return group_at[2]; }

void amd_s_barrier(uint32_t site) { wait_for(BARRIER, site); }

static uint32_t below(uint32_t mask, int lane) {
    uint32_t seen = lane <= 0 ? 0 : lane >= 32 ? mask : mask & ((1u << lane) - 1);
    return (uint32_t)__builtin_popcount(seen);
}

uint32_t amd_mbcnt_lo(uint32_t mask, uint32_t more) { return more + below(mask, now % wave_size); }
uint32_t amd_mbcnt_hi(uint32_t mask, uint32_t more) { return more + below(mask, now % wave_size - 32); }

/* Results below the normal range are 0 (CDNA3 ISA, V_EXP_F32). */
float amd_exp2_f32(float x) {
    float y = exp2f(x);
    return y < 0x1p-126f ? 0.0f : y;
}

uint32_t amd_ds_bpermute(uint32_t place, uint32_t value, uint32_t site) {
    thread *one = &threads[now];
    one->given = value;
    one->from = place / 4 % (uint32_t)wave_size;
    wait_for(EXCHANGE, site);
    return threads[now].found;
}

void amd_product(uint32_t element, uint32_t own, const void *a, const void *b, void *c,
                 uint32_t site) {
    thread *one = &threads[now];
    one->element = element, one->own = (int)own, one->a = a, one->b = b, one->c = c;
    wait_for(PRODUCT, site);
}

static int inside(const range *one, uint64_t address, uint64_t size) {
    return address >= one->first && address + size <= one->first + one->size;
}

void amd_access(uint64_t address, uint64_t size, uint64_t align, uint32_t site) {
    if (address % align) fail(UNALIGNED, site);
    if (last < known && inside(&ranges[last], address, size)) return;
    for (last = 0; last < known; last++)
        if (inside(&ranges[last], address, size)) return;
    fail(STRAY, site);
}

/* --- matrices */

static double half(uint32_t bits) {
    int power = (int)(bits >> 10 & 31), low = (int)(bits & 1023);
    double size = power == 31 ? (low ? NAN : INFINITY)
                  : power     ? ldexp(1024 + low, power - 25)
                              : ldexp(low, -24);
    return bits >> 15 ? -size : size;
}

static double eighth(uint32_t bits, int mantissa, int bias) {
    int power = (int)(bits >> mantissa & ((128 >> mantissa) - 1));
    int low = (int)(bits & ((1u << mantissa) - 1)), one = 1 << mantissa;
    double size = power ? ldexp(one + low, power - bias - mantissa) : ldexp(low, 1 - bias - mantissa);
    if (mantissa == 3 && (bits & 127) == 127) size = NAN;
    if (mantissa == 2 && power == 31) size = low ? NAN : INFINITY;
    return bits >> 7 ? -size : size;
}

static double term(enum element element, const void *from, int n) {
    const uint8_t *bytes = from;
    const uint16_t *halves = from;
    float whole;
    uint32_t high;
    switch (element) {
        case F32: return ((const float *)from)[n];
        case F16: return half(halves[n]);
        case BF16:
            high = (uint32_t)halves[n] << 16;
            memcpy(&whole, &high, 4);
            return whole;
        case I8: return ((const int8_t *)from)[n];
        case E4M3: return eighth(bytes[n], 3, 7);
        default: return eighth(bytes[n], 2, 15);
    }
}

static void multiply(thread *wave) {
    for (int lane = 0; lane < WAVE; lane++)
        for (int gpr = 0; gpr < 4; gpr++) {
            int i = 4 * (lane / 16) + gpr, j = lane % 16;
            double sum = 0;
            for (int part = 0; part < 4; part++)
                for (int n = 0; n < wave->own; n++)
                    sum += term(wave->element, wave[16 * part + i].a, n) *
                           term(wave->element, wave[16 * part + j].b, n);
            if (wave->element == I8)
                ((int32_t *)wave[lane].c)[gpr] =
                    (int32_t)((uint32_t)((int32_t *)wave[lane].c)[gpr] + (uint32_t)(int32_t)sum);
            else
                ((float *)wave[lane].c)[gpr] = (float)(((float *)wave[lane].c)[gpr] + sum);
        }
}

/* --- groups */

static int at(const thread *one, enum state state, uint32_t site) {
    return one->state == state && one->site == site;
}

/* The first place where a thread of a wave waits for it; 0 if there is none. */
static thread *first_of(thread *wave, int size) {
    thread *found = NULL;
    for (int n = 0; n < size; n++)
        if ((wave[n].state == EXCHANGE || wave[n].state == PRODUCT) &&
            (found == NULL || wave[n].site < found->site))
            found = &wave[n];
    return found;
}

static int go_on(thread *wave, int size) {
    thread *first = first_of(wave, size);
    if (first == NULL) return 0;
    enum state state = first->state;
    uint32_t site = first->site;
    for (int n = 0; n < size; n++) {
        if (!at(&wave[n], state, site)) {
            if (state == PRODUCT) fault = ALONE, faulty = (int)site;
            continue;
        }
        int from = (int)wave[n].from;
        if (state == PRODUCT ? size < WAVE : from >= size || !at(&wave[from], state, site)) {
            fault = ALONE, faulty = (int)site;
            return 1;
        }
        if (state == EXCHANGE) wave[n].found = wave[from].given;
    }
    if (state == PRODUCT && !fault) multiply(wave);
    for (int n = 0; n < size; n++)
        if (at(&wave[n], state, site)) wave[n].state = RUNS;
    return 1;
}

static int waves_go_on(void) {
    int any = 0;
    for (int first = 0; first < count; first += wave_size)
        any |= go_on(threads + first, count - first < wave_size ? count - first : wave_size);
    return any;
}

static void pass_barrier(void) {
    int first = 0;
    while (threads[first].state != BARRIER) first++;
    for (int n = 0; n < count; n++)
        if (!at(&threads[n], BARRIER, threads[first].site)) {
            fault = threads[n].state == ENDED ? STUCK : UNEVEN;
            faulty = (int)threads[first].site;
            return;
        }
    for (int n = 0; n < count; n++) threads[n].state = RUNS;
}

static int ended(void) {
    for (int n = 0; n < count; n++)
        if (threads[n].state != ENDED) return 0;
    return 1;
}

static void run_group(int backwards) {
    for (int n = 0; n < count; n++) threads[n].state = RUNS, threads[n].started = 0;
    while (!fault) {
        for (int n = 0; n < count && !fault; n++) {
            int one = backwards ? count - 1 - n : n;
            if (threads[one].state == RUNS) resume(one);
        }
        if (fault || ended()) return;
        if (!waves_go_on()) pass_barrier();
    }
}

/* Their lowest pages end a process that goes beyond. */
static char *make_stacks(void) {
    char *made = mmap(NULL, (size_t)MOST * STACK, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    for (int n = 0; n < MOST; n++) mprotect(made + (size_t)n * STACK, PAGE, PROT_NONE);
    return made;
}

/* Runs a grid of groups in waves of so many threads, the last ones first if `backwards`; `shared` is what a group has, `given`
   all that it may touch.  Gives what went wrong, and `where`. */
int amd_launch(entry *kernel, void **given_arguments, const uint32_t *grid, const uint32_t *block,
               const range *shared, int shared_count, const range *given, int given_count,
               int wave, int backwards, int *where) {
    if (stacks == NULL) stacks = make_stacks();
    code = kernel, arguments = given_arguments;
    ranges = given, known = given_count, last = 0, fault = NONE;
    wave_size = wave;
    memcpy(extents, block, sizeof extents);
    count = (int)(block[0] * block[1] * block[2]);
    uint64_t groups = (uint64_t)grid[0] * grid[1] * grid[2];
    for (uint64_t n = 0; n < groups && !fault; n++) {
        uint64_t group = backwards ? groups - 1 - n : n;
        group_at[0] = (uint32_t)(group % grid[0]);
        group_at[1] = (uint32_t)(group / grid[0] % grid[1]);
        group_at[2] = (uint32_t)(group / grid[0] / grid[1]);
        for (int s = 0; s < shared_count; s++)
            memset((void *)shared[s].first, 0xFF, shared[s].size);
        run_group(backwards);
    }
    *where = faulty;
    return fault;
}
