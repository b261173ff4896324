/* Threads of a group of a GPU of AMD's, one after the other on a processor: each has a stack of its
   own, and goes on until it waits for others.

   What a wave does together is done when nobody of it can go on by itself, for those at the place
   that stands first in the text; a group's barrier is passed when all its threads stand at the same
   one.  Registers of matrix instructions are laid out as AMD's calculator prints them
   (github.com/ROCm/amd_matrix_instruction_calculator at 2ef91896, --detail-instruction): of a thread
   A i, B j and D j are lane % 16, D i is 4 (lane / 16) + GPR, and k goes through a thread's own terms
   from (lane / 16) times their number on.  Those of gfx950 with twice the terms are laid out likewise
   (ROCm/composable_kernel, mfma_type in include/ck/tensor_operation/gpu/warp/xdlops_gemm.hpp).  Of
   v_wmma of 32 threads it prints for rdna3 that A i, B j and D j are lane % 16, k is the number of a
   thread's own term, so that threads 16 apart have the same, and D i is 2 GPR + lane / 16; for rdna4
   that D i is 8 (lane / 16) + GPR, and k of terms of 16 bits is
   8 (GPR / 2) + 4 (lane / 16) + 2 (GPR % 2) + half, of bytes 8 (lane / 16) + 4 GPR + byte. */

#define _GNU_SOURCE
#include <math.h>
#include <setjmp.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

enum { SIDE = 16, MOST = 1024, STACK = 1 << 18, PAGE = 1 << 12 };
enum state { RUNS, BARRIER, EXCHANGE, PRODUCT, ENDED };
enum fault { NONE, STRAY, UNALIGNED, ALONE, UNEVEN, STUCK, UNLIKE };
enum element { F32, F16, BF16, I8, E4M3, E5M2, U8 };
enum layout { MFMA, RDNA3, RDNA4 };

typedef struct {
    enum state state;
    int started;
    uint32_t site, given, from, found;
    enum layout layout;
    enum element left, right;
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

/* The thread of the other 16 of 32 that four bits of 64 say, 0 to 15 (RDNA3 ISA,
   V_PERMLANEX16_B32). */
uint32_t amd_permlanex16_i32(uint32_t old, uint32_t value, uint32_t low, uint32_t high, uint32_t site) {
    uint32_t lane = (uint32_t)(now % wave_size), place = lane % 16;
    (void)old;
    thread *one = &threads[now];
    one->given = value;
    one->from = (lane & 48) ^ 16 | ((place < 8 ? low : high) >> 4 * (place % 8) & 15);
    wait_for(EXCHANGE, site);
    return threads[now].found;
}

/* Bytes of 8 that 4 select, those of `first` above those of `second` (RDNA3 ISA, V_PERM_B32). */
uint32_t amd_perm(uint32_t first, uint32_t second, uint32_t selector) {
    uint64_t both = (uint64_t)first << 32 | second;
    uint32_t made = 0;
    for (int n = 0; n < 4; n++) {
        uint32_t which = selector >> 8 * n & 255;
        uint32_t byte = which < 8    ? (uint32_t)(both >> 8 * which) & 255
                        : which < 12 ? (uint32_t)-(both >> (16 * (which - 8) + 15) & 1) & 255
                                     : which == 12 ? 0 : 255;
        made |= byte << 8 * n;
    }
    return made;
}

void amd_product(uint32_t layout, uint32_t left, uint32_t right, uint32_t own, const void *a,
                 const void *b, void *c, uint32_t site) {
    thread *one = &threads[now];
    one->layout = layout, one->left = left, one->right = right, one->own = (int)own;
    one->a = a, one->b = b, one->c = c;
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
        case U8: return bytes[n];
        case E4M3: return eighth(bytes[n], 3, 7);
        default: return eighth(bytes[n], 2, 15);
    }
}

static int threads_of(enum layout layout) { return layout == MFMA ? 64 : 32; }

/* The term that a thread has as number n of its own. */
static int term_of(const thread *one, int lane, int n) {
    int part = lane / SIDE;
    if (one->layout == RDNA3) return n;
    if (one->layout == RDNA4 && (one->left == F16 || one->left == BF16))
        return 8 * (n / 2 / 2) + 4 * part + 2 * (n / 2 % 2) + n % 2;
    return part * one->own + n;
}

/* The row of sums in a register. */
static int row_of(enum layout layout, int lane, int gpr) {
    switch (layout) {
        case MFMA: return 4 * (lane / SIDE) + gpr;
        case RDNA3: return 2 * gpr + lane / SIDE;
        default: return 8 * (lane / SIDE) + gpr;
    }
}

/* Whether threads 16 apart have the same of operands. */
static int alike(const thread *wave) {
    for (int lane = 0; lane < SIDE; lane++) {
        const thread *one = &wave[lane], *other = &wave[lane + SIDE];
        size_t size = (size_t)one->own * (one->left == F16 || one->left == BF16 ? 2 : 1);
        if (memcmp(one->a, other->a, size) || memcmp(one->b, other->b, size)) return 0;
    }
    return 1;
}

static void multiply(thread *wave) {
    enum layout layout = wave->layout;
    int count = threads_of(layout), whole = wave->left == I8 || wave->left == U8;
    double a[SIDE][64], b[64][SIDE];
    int terms = 0;
    for (int lane = 0; lane < count; lane++)
        for (int n = 0; n < wave->own; n++) {
            int k = term_of(wave, lane, n);
            terms = k < terms ? terms : k + 1;
            a[lane % SIDE][k] = term(wave->left, wave[lane].a, n);
            b[k][lane % SIDE] = term(wave->right, wave[lane].b, n);
        }
    for (int lane = 0; lane < count; lane++)
        for (int gpr = 0; gpr < SIDE * SIDE / count; gpr++) {
            int i = row_of(layout, lane, gpr), j = lane % SIDE;
            double sum = 0;
            for (int k = 0; k < terms; k++) sum += a[i][k] * b[k][j];
            if (whole)
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
        if (state == PRODUCT ? size != threads_of(first->layout) : from >= size || !at(&wave[from], state, site)) {
            fault = ALONE, faulty = (int)site;
            return 1;
        }
        if (state == EXCHANGE) wave[n].found = wave[from].given;
    }
    if (state == PRODUCT && !fault) {
        if (first->layout == RDNA3 && !alike(wave)) fault = UNLIKE, faulty = (int)site;
        multiply(wave);
    }
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
