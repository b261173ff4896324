/* mcc.c: the interpreter of modelcc's bytecode; see mcc.h. */
#include "mcc.h"

#include <string.h>

#if MCC_KERNELS > 65536
#error "kernels are numbered by 16 bits"
#endif

#ifdef __GNUC__
#define MCC_INLINE static inline __attribute__((always_inline))
#define MCC_APART static __attribute__((noinline)) /* its stack is taken while it runs only */
#else
#define MCC_INLINE static inline
#define MCC_APART static
#endif

enum { MAGIC = 0x4243434d, VERSION = 2, WORDS = 20, TENSOR_WORDS = 6 };

/* Words of the head. */
enum {
    H_MAGIC, H_VERSION, H_BYTES, H_CHECKSUM, H_ARENA, H_INPUTS, H_OUTPUTS, H_TENSORS, H_KERNELS,
    H_IDS, H_CALLS, H_CALL_TABLE, H_STEPS, H_STEP_WORDS, H_CONSTANTS, H_CONSTANT_BYTES, H_NAMES,
    H_MODEL, H_TARGET
};

enum { T_NAME, T_KIND, T_BYTES, T_ROOM, T_FIRST, T_SHAPE };

enum { WRITTEN = 32 }; /* in the type of a buffer */

enum { LAUNCH = 1, COPY = 2, BRANCH = 3, REPEAT = 4 };

/* Words of steps; a launch has one for each buffer besides.  What lies behind them are changes. */
enum { OWN_LAUNCH = 3, OWN = 5 };

/* Words of expressions, in postfix order: the upper 28 bits are the number, or which counter. */
enum { NUMBER, NEGATIVE, COUNTER, SUM, PRODUCT, QUOTIENT, REMAINDER, LEAST, GREATEST };

enum { STACK = 8 }; /* numbers that an expression has at a time */

enum { ARENA = 0, CONSTANTS = 1, TENSORS = 2 }; /* bases; the tensors follow each other */

enum { PLACE = 27, MOST = 0x7ffffff, BASES = 32 }; /* a reference: a base, and bytes behind it */

static const uint32_t *at(const uint8_t *file, uint32_t offset)
{
    return (const uint32_t *)(const void *)(file + offset);
}

static uint32_t head(const mcc_model *model, int word) { return at(model->file, 0)[word]; }

/* Whether `count` items of `size` bytes at a multiple of 4 are in the file. */
static int inside(const uint32_t *h, uint32_t offset, uint32_t count, uint32_t size)
{
    return offset % 4 == 0 && offset <= h[H_BYTES] && count <= (h[H_BYTES] - offset) / size;
}

static int32_t check_head(const void *file, uint32_t bytes)
{
    const uint32_t *h = file;
    if (file == NULL || (uintptr_t)file % 8 != 0 || bytes < 4 * WORDS) return MCC_NO_MODEL;
    if (h[H_MAGIC] != MAGIC || h[H_VERSION] - 1 >= VERSION) return MCC_NO_MODEL;
    if (h[H_BYTES] > bytes || h[H_BYTES] < 4 * WORDS || h[H_BYTES] > MOST) return MCC_CUT_OFF;
    return 0;
}

int32_t mcc_verify(const void *file, uint32_t bytes)
{
    const uint8_t *byte = file;
    const uint32_t *h = file;
    uint32_t sum = UINT32_C(0xffffffff);
    int32_t status = check_head(file, bytes);
    if (status != 0) return status;
    for (uint32_t i = 4 * (H_CHECKSUM + 1); i < h[H_BYTES]; i++) { /* CRC-32 (ISO 3309) */
        sum ^= byte[i];
        for (int bit = 0; bit < 8; bit++)
            sum = sum >> 1 ^ (UINT32_C(0xedb88320) & (UINT32_C(0) - (sum & 1)));
    }
    return ~sum == h[H_CHECKSUM] ? 0 : MCC_DAMAGED;
}

static const uint32_t *tensor(const uint8_t *file, uint32_t which)
{
    return at(file, at(file, 0)[H_TENSORS]) + TENSOR_WORDS * which;
}

static int32_t check_sections(const uint8_t *file)
{
    const uint32_t *h = at(file, 0);
    const uint32_t names = h[H_NAMES];
    if (h[H_INPUTS] > MCC_MOST_TENSORS || h[H_OUTPUTS] > MCC_MOST_TENSORS) return MCC_TOO_MANY;
    const uint32_t tensors = h[H_INPUTS] + h[H_OUTPUTS];
    if (tensors > MCC_MOST_TENSORS || TENSORS + tensors > BASES) return MCC_TOO_MANY;
    if (h[H_ARENA] > MOST || !inside(h, h[H_TENSORS], tensors, 4 * TENSOR_WORDS) ||
        !inside(h, h[H_IDS], h[H_KERNELS], 8) || !inside(h, h[H_CALL_TABLE], h[H_CALLS], 4) ||
        !inside(h, h[H_STEPS], h[H_STEP_WORDS], 4) || h[H_CONSTANTS] % 8 != 0 ||
        !inside(h, h[H_CONSTANTS], h[H_CONSTANT_BYTES], 1) || names >= h[H_BYTES] ||
        file[h[H_BYTES] - 1] != 0 || h[H_MODEL] >= h[H_BYTES] - names ||
        h[H_TARGET] >= h[H_BYTES] - names)
        return MCC_NOT_BOUNDED;
    for (uint32_t i = 0; i < tensors; i++) {
        const uint32_t *t = tensor(file, i);
        const uint32_t state = t[T_KIND] >> 16;
        if (t[T_NAME] >= h[H_BYTES] - names || t[T_BYTES] > MOST || state > 1 ||
            (state != 0 && i >= h[H_INPUTS]) || !inside(h, t[T_SHAPE], t[T_KIND] >> 8 & 255, 4))
            return MCC_NOT_BOUNDED;
        if (t[T_ROOM] != MCC_NOWHERE &&
            (t[T_ROOM] % 8 != 0 || t[T_ROOM] > h[H_ARENA] || t[T_BYTES] > h[H_ARENA] - t[T_ROOM]))
            return MCC_NOT_BOUNDED;
        if (t[T_FIRST] != MCC_NOWHERE && (t[T_FIRST] > h[H_CONSTANT_BYTES] ||
                                          t[T_BYTES] > h[H_CONSTANT_BYTES] - t[T_FIRST]))
            return MCC_NOT_BOUNDED;
    }
    return 0;
}

/* The kernels that a model uses, which it names in the order of the table. */
static int32_t find_kernels(mcc_model *model)
{
    const uint32_t count = head(model, H_KERNELS);
    const uint32_t *id = at(model->file, head(model, H_IDS));
    uint32_t own = 0;
    for (uint32_t i = 0; i < count; i++, own++, id += 2) {
        while (own < MCC_KERNELS && (mcc_kernels[own].id[0] != id[0] || mcc_kernels[own].id[1] != id[1]))
            own++;
        if (own == MCC_KERNELS) {
            memcpy(model->missing, id, 8);
            return MCC_NO_KERNEL;
        }
        model->used[i] = (uint16_t)own;
    }
    return 0;
}

static const mcc_kernel *kernel_of(const mcc_model *model, const uint32_t *call)
{
    return &mcc_kernels[model->used[call[0]]];
}

/* Parameters of all calls: a kernel stays in its buffers, of less than 2^27 elements each. */
static int32_t check_calls(const mcc_model *model)
{
    const uint32_t *h = at(model->file, 0);
    for (uint32_t i = 0; i < h[H_CALLS]; i++) {
        const uint32_t offset = at(model->file, h[H_CALL_TABLE])[i];
        if (!inside(h, offset, 1, 4)) return MCC_NOT_BOUNDED;
        const uint32_t *call = at(model->file, offset);
        if (call[0] >= h[H_KERNELS]) return MCC_NOT_BOUNDED;
        const mcc_kernel *kernel = kernel_of(model, call);
        if (!inside(h, offset, 1 + (uint32_t)kernel->parameters, 4)) return MCC_NOT_BOUNDED;
        if (!kernel->fits((const int32_t *)(call + 1))) return MCC_NOT_BOUNDED;
    }
    return 0;
}

/* What steps may access: of each base the bytes that are read, and those that are written. */
typedef struct {
    const mcc_model *model;
    const uint32_t *table;
    uint32_t sizes[2 * BASES];
} memories;

static uint32_t size_of(const mcc_model *model, uint32_t base, int written)
{
    const uint32_t *h = at(model->file, 0);
    if (base == ARENA) return h[H_ARENA];
    if (base == CONSTANTS) return written ? 0 : h[H_CONSTANT_BYTES];
    if (base - TENSORS >= h[H_INPUTS] + h[H_OUTPUTS]) return 0;
    const uint32_t *t = tensor(model->file, base - TENSORS);
    return written && base - TENSORS < h[H_INPUTS] && t[T_KIND] >> 16 == 0 ? 0 : t[T_BYTES];
}

static void find_memories(memories *m, const mcc_model *model)
{
    const uint32_t *h = at(model->file, 0);
    m->model = model;
    m->table = at(model->file, h[H_CALL_TABLE]);
    memset(m->sizes, 0, sizeof m->sizes);
    for (uint32_t i = 0; i < 2 * (TENSORS + h[H_INPUTS] + h[H_OUTPUTS]); i++)
        m->sizes[i] = size_of(model, i / 2, i % 2);
}

/* 0 if the memory at `ref`, in a base of `size` bytes, has so many (at most a GiB) and may be what
 * `type` says. */
MCC_INLINE uint32_t lacks_of(uint32_t size, uint32_t ref, uint32_t bytes, uint32_t type)
{
    const uint32_t offset = ref & MOST;
    return (offset & (type >> 2 & 7)) | (size - offset - bytes) >> 31;
}

MCC_INLINE uint32_t lacks(const memories *m, uint32_t ref, uint32_t bytes, uint32_t type)
{
    return lacks_of(m->sizes[2 * (ref >> PLACE) + (type >> 5 & 1)], ref, bytes, type);
}

/* Whether an expression leaves one number, of the counters of so many loops. */
static int check_expression(const uint32_t *word, uint32_t count, uint32_t loops)
{
    uint32_t depth = 0;
    for (; count != 0; count--, word++) {
        const uint32_t op = *word & 15;
        if (op <= COUNTER) {
            if (depth == STACK || (op == COUNTER && *word >> 4 >= loops)) return 0;
            depth++;
        } else {
            if (depth < 2 || op > GREATEST) return 0;
            depth--;
        }
    }
    return depth == 1;
}

/* Whether the words from `change` to `end` are changes of words from `first` to before `last`: each
 * says which, and how many words of an expression follow. */
static int check_changes(const uint32_t *change, const uint32_t *end, uint32_t first, uint32_t last,
                         uint32_t loops)
{
    while (change != end) {
        const uint32_t place = *change & 0xffff, count = *change >> 16;
        if (place < first || place >= last || count >= (uint32_t)(end - change)) return 0;
        if (!check_expression(change + 1, count, loops)) return 0;
        change += 1 + count;
    }
    return 1;
}

static int check_launch(const memories *m, const uint32_t *step, uint32_t words, uint32_t loops)
{
    if (words < OWN_LAUNCH || step[2] >= at(m->model->file, 0)[H_CALLS]) return 0;
    const uint32_t *call = at(m->model->file, m->table[step[2]]);
    const mcc_kernel *kernel = kernel_of(m->model, call);
    const uint32_t buffers = kernel->buffers, own = OWN_LAUNCH + buffers;
    if (words < own) return 0;
    const uint32_t *number = call + 1, *ref = step + OWN_LAUNCH;
    uint32_t bad = 0;
    for (const uint8_t *type = kernel->types, *last = type + buffers; type != last; type++)
        bad |= lacks(m, *ref++, *number++ << (*type & 3), *type);
    if (bad != 0) return 0;
    /* Elements of buffers, the first parameters, do not change. */
    const uint32_t last = OWN_LAUNCH + (uint32_t)kernel->parameters;
    return check_changes(step + own, step + words, OWN_LAUNCH, last, loops);
}

/* Steps that have so many words, and those within them. */
static int32_t check_steps(const memories *m, const uint32_t *step, uint32_t left, int depth,
                           uint32_t loops)
{
    const uint32_t *h = at(m->model->file, 0);
    if (depth > MCC_MOST_DEPTH) return MCC_TOO_MANY;
    while (left != 0) {
        const uint32_t words = step[0] >> 8, op = step[0] & 255;
        uint32_t inner = 0;
        if (words < 2 || words > left || step[1] >= h[H_BYTES] - h[H_NAMES]) return MCC_NOT_BOUNDED;
        if (op != LAUNCH && words < OWN) return MCC_NOT_BOUNDED;
        switch (op) {
        case LAUNCH:
            if (!check_launch(m, step, words, loops)) return MCC_NOT_BOUNDED;
            break;
        case COPY:
            if (step[4] > MOST || lacks(m, step[2], step[4], WRITTEN) != 0 ||
                lacks(m, step[3], step[4], 0) != 0 ||
                !check_changes(step + OWN, step + words, 2, 4, loops))
                return MCC_NOT_BOUNDED;
            break;
        case BRANCH:
            if (lacks(m, step[2], 1, 0) != 0 || !check_changes(step + OWN, step + words, 2, 3, loops))
                return MCC_NOT_BOUNDED;
            if (step[3] > left - words || step[4] > left - words - step[3]) return MCC_NOT_BOUNDED;
            for (uint32_t side = 0; side < 2; side++) {
                const uint32_t *start = step + words + (side != 0 ? step[3] : 0);
                const int32_t status = check_steps(m, start, step[3 + side], depth + 1, loops);
                if (status != 0) return status;
            }
            inner = step[3] + step[4];
            break;
        case REPEAT:
            if (step[2] > INT32_MAX || step[3] > left - words ||
                (step[4] != MCC_NOWHERE && lacks(m, step[4], 1, 0) != 0) ||
                !check_changes(step + OWN, step + words, 4, 5, loops + 1))
                return MCC_NOT_BOUNDED;
            inner = step[3];
            const int32_t status = check_steps(m, step + words, inner, depth + 1, loops + 1);
            if (status != 0) return status;
            break;
        default:
            return MCC_NOT_BOUNDED;
        }
        step += words + inner;
        left -= words + inner;
    }
    return 0;
}

int32_t mcc_open(mcc_model *model, const void *file, uint32_t bytes)
{
    int32_t status = check_head(file, bytes);
    if (status != 0) return status;
    model->file = file;
    if ((status = check_sections(model->file)) != 0) return status;
    if ((status = find_kernels(model)) != 0) return status;
    if ((status = check_calls(model)) != 0) return status;
    memories m;
    find_memories(&m, model);
    const uint32_t *steps = at(model->file, head(model, H_STEPS));
    return check_steps(&m, steps, head(model, H_STEP_WORDS), 0, 0);
}

uint32_t mcc_arena_bytes(const mcc_model *model) { return head(model, H_ARENA); }

uint32_t mcc_inputs(const mcc_model *model) { return head(model, H_INPUTS); }

uint32_t mcc_outputs(const mcc_model *model) { return head(model, H_OUTPUTS); }

static const char *text(const mcc_model *model, uint32_t offset)
{
    return (const char *)(model->file + head(model, H_NAMES) + offset);
}

mcc_tensor mcc_tensor_of(const mcc_model *model, uint32_t which)
{
    const uint32_t *t = tensor(model->file, which);
    mcc_tensor found;
    found.name = text(model, t[T_NAME]);
    found.shape = at(model->file, t[T_SHAPE]);
    found.first = t[T_FIRST] == MCC_NOWHERE ? NULL : model->file + head(model, H_CONSTANTS) + t[T_FIRST];
    found.type = t[T_KIND] & 255;
    found.rank = t[T_KIND] >> 8 & 255;
    found.bytes = t[T_BYTES];
    found.room = t[T_ROOM];
    found.state = (int32_t)(t[T_KIND] >> 16);
    return found;
}

const char *mcc_step_name(const mcc_model *model, int32_t step)
{
    if (step < 1 || (uint32_t)step >= head(model, H_STEP_WORDS)) return "";
    const uint32_t name = at(model->file, head(model, H_STEPS))[step];
    return name < head(model, H_BYTES) - head(model, H_NAMES) ? text(model, name) : "";
}

void mcc_reset(const mcc_model *model, void *const *tensors)
{
    for (uint32_t i = 0; i < head(model, H_INPUTS); i++) {
        const mcc_tensor t = mcc_tensor_of(model, i);
        if (!t.state || tensors[i] == NULL) continue;
        if (t.first == NULL)
            memset(tensors[i], 0, t.bytes);
        else
            memcpy(tensors[i], t.first, t.bytes);
    }
}

/* What a run knows: where memory is, and the iterations of the loops that it is in. */
typedef struct {
    const mcc_model *model;
    const uint32_t *steps, *table;
    uint8_t *bases[TENSORS + MCC_MOST_TENSORS];
    uint32_t loops;
    int32_t counters[MCC_MOST_DEPTH];
} run_state;

MCC_INLINE uint8_t *place_of(const run_state *run, uint32_t ref)
{
    return run->bases[ref >> PLACE] + (ref & MOST);
}

/* Whether an expression, which has been checked, is a number of 32 bits. */
static int number_of(const run_state *run, const uint32_t *word, uint32_t count, int32_t *found)
{
    int32_t stack[STACK], *top = stack;
    for (; count != 0; count--, word++) {
        const uint32_t op = *word & 15, operand = *word >> 4;
        if (op <= COUNTER) {
            *top++ = op == COUNTER    ? run->counters[operand]
                     : op == NEGATIVE ? -(int32_t)operand
                                      : (int32_t)operand;
            continue;
        }
        const int32_t b = *--top, a = top[-1];
        if ((op == QUOTIENT || op == REMAINDER) && b < 1) return 0;
        int64_t value = op == SUM ? (int64_t)a + b : (int64_t)a * b;
        if (op == QUOTIENT) value = a / b - (a % b < 0);
        if (op == REMAINDER) value = a % b + (a % b < 0 ? b : 0);
        if (op == LEAST) value = a < b ? a : b;
        if (op == GREATEST) value = a > b ? a : b;
        if (value < INT32_MIN || value > INT32_MAX) return 0;
        top[-1] = (int32_t)value;
    }
    *found = stack[0];
    return 1;
}

/* Whether a reference may lead to a place so many bytes behind its base; `ref` does so then. */
static int move(const run_state *run, int32_t place, uint32_t bytes, uint32_t type, uint32_t *ref)
{
    if (place < 0 || place > MOST) return 0;
    *ref = (*ref & ~(uint32_t)MOST) | (uint32_t)place;
    return lacks_of(size_of(run->model, *ref >> PLACE, (type & WRITTEN) != 0), *ref, bytes, type) == 0;
}

/* A reference of a step other than a launch, as changes have it. */
MCC_APART int reference(const run_state *run, const uint32_t *step, uint32_t which, uint32_t bytes,
                     uint32_t type, uint32_t *ref)
{
    const uint32_t *end = step + (step[0] >> 8);
    int32_t place;
    *ref = step[which];
    for (const uint32_t *change = step + OWN; change != end; change += 1 + (*change >> 16)) {
        if ((*change & 0xffff) != which) continue;
        if (!number_of(run, change + 1, *change >> 16, &place)) return 0;
        if (!move(run, place, bytes, type, ref)) return 0;
    }
    return 1;
}

/* Whether a kernel's checks held. */
MCC_APART int launch(const run_state *run, const mcc_kernel *kernel, const uint32_t *ref,
                  const int32_t *parameters)
{
    void *buffers[MCC_BUFFERS];
    int64_t faults[2 * MCC_CHECKS];
    for (void **b = buffers, **last = b + kernel->buffers; b != last; ref++)
        *b++ = place_of(run, *ref);
    const uint32_t checks = kernel->checks;
    for (uint32_t i = 0; i < checks; i++) faults[2 * i] = 0;
    kernel->run(buffers, parameters, faults);
    for (uint32_t i = 0; i < checks; i++)
        if (faults[2 * i] != 0) return 0;
    return 1;
}

/* A launch whose references and parameters hang on counters; what they may be is checked now. */
MCC_APART int launch_changed(const run_state *run, const mcc_kernel *kernel, const uint32_t *step,
                          const int32_t *parameters)
{
    const uint32_t buffers = kernel->buffers, *end = step + (step[0] >> 8);
    uint32_t refs[MCC_BUFFERS];
    int32_t numbers[MCC_PARAMETERS], number;
    memcpy(refs, step + OWN_LAUNCH, 4 * buffers);
    memcpy(numbers, parameters, 4 * (size_t)kernel->parameters);
    for (const uint32_t *change = step + OWN_LAUNCH + buffers; change != end;
         change += 1 + (*change >> 16)) {
        const uint32_t which = (*change & 0xffff) - OWN_LAUNCH;
        if (!number_of(run, change + 1, *change >> 16, &number)) return 0;
        if (which >= buffers) {
            numbers[which] = number;
            continue;
        }
        const uint32_t type = kernel->types[which];
        if (!move(run, number, (uint32_t)parameters[which] << (type & 3), type, &refs[which])) return 0;
    }
    return kernel->fits(numbers) && launch(run, kernel, refs, numbers);
}

/* 0, or the place of the step that ended the run, behind the first word of it. */
static int32_t run_steps(run_state *run, const uint32_t *step, const uint32_t *end)
{
    while (step != end) {
        const uint32_t words = step[0] >> 8;
        const uint32_t *next = step + words;
        uint32_t target, source;
        int32_t status = 0;
        int done = 1;
        switch (step[0] & 255) {
        case LAUNCH: {
            const uint32_t *call = at(run->model->file, run->table[step[2]]);
            const mcc_kernel *kernel = kernel_of(run->model, call);
            const int32_t *parameters = (const int32_t *)(call + 1);
            done = words == OWN_LAUNCH + (uint32_t)kernel->buffers
                       ? launch(run, kernel, step + OWN_LAUNCH, parameters)
                       : launch_changed(run, kernel, step, parameters);
            break;
        }
        case COPY:
            done = reference(run, step, 2, step[4], WRITTEN, &target) &&
                   reference(run, step, 3, step[4], 0, &source);
            if (done) memmove(place_of(run, target), place_of(run, source), step[4]);
            break;
        case BRANCH: {
            const uint32_t *then = next, *other = then + step[3];
            next = other + step[4];
            done = reference(run, step, 2, 1, 0, &source);
            if (done)
                status = *place_of(run, source) != 0 ? run_steps(run, then, other)
                                                     : run_steps(run, other, next);
            break;
        }
        default: {
            const uint32_t *body = next;
            int32_t *counter = &run->counters[run->loops++];
            next = body + step[3];
            for (*counter = 0; (uint32_t)*counter < step[2] && status == 0; ++*counter) {
                if (step[4] != MCC_NOWHERE) {
                    done = reference(run, step, 4, 1, 0, &source);
                    if (!done || *place_of(run, source) == 0) break;
                }
                status = run_steps(run, body, next);
            }
            run->loops--;
        }
        }
        if (!done) return (int32_t)(step - run->steps) + 1;
        if (status != 0) return status;
        step = next;
    }
    return 0;
}

int32_t mcc_run(const mcc_model *model, void *arena, void *const *tensors)
{
    const uint32_t *h = at(model->file, 0);
    run_state run;
    run.model = model;
    run.steps = at(model->file, h[H_STEPS]);
    run.table = at(model->file, h[H_CALL_TABLE]);
    run.loops = 0;
    if (arena == NULL || (uintptr_t)arena % 8 != 0) return MCC_NO_MEMORY;
    run.bases[ARENA] = arena;
    run.bases[CONSTANTS] = (uint8_t *)(uintptr_t)(model->file + h[H_CONSTANTS]); /* only read */
    for (uint32_t i = 0; i < h[H_INPUTS] + h[H_OUTPUTS]; i++) {
        const uint32_t room = tensor(model->file, i)[T_ROOM];
        uint8_t *given = tensors[i];
        if (given == NULL) {
            if (room == MCC_NOWHERE) return MCC_NO_MEMORY;
            given = (uint8_t *)arena + room;
        }
        if ((uintptr_t)given % 8 != 0) return MCC_NO_MEMORY;
        run.bases[TENSORS + i] = given;
    }
    return run_steps(&run, run.steps, run.steps + h[H_STEP_WORDS]);
}
