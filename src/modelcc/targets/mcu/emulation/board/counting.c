/*
 * A plugin of QEMU's that counts how often each instruction runs, and after how many times another
 * one than the next follows, between two addresses, for each step of a model by itself.
 *
 * Arguments: out=FILE, begin=ADDRESS, end=ADDRESS, and steps=FILE with a line "ADDRESS NUMBER" for
 * where each step begins.  The result has lines "STEP ADDRESS BYTES COUNT TAKEN"; before the first
 * step STEP is -1.  What of QEMU's interface is used is declared here, for not all installations
 * have its header; it is the same in all versions.
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VISIBLE __attribute__((visibility("default")))

struct qemu_plugin_tb;
struct qemu_plugin_insn;
typedef void on_translation(uint64_t id, struct qemu_plugin_tb *block);
typedef void on_execution(unsigned processor, void *data);

extern void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id, on_translation *function);
extern size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *block);
extern struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *block, size_t n);
extern uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *one);
extern size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *one);
extern void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *one,
    on_execution *function, int registers, void *data);

VISIBLE int qemu_plugin_version = PLUGIN_VERSION;

struct instruction {
    uint64_t address, bytes, count, taken;
    struct instruction *older;
};

struct mark {
    uint64_t address;
    long step;
};

static struct instruction *newest, *last;
static struct mark *marks;
static size_t mark_count;
static uint64_t begin, end;
static long step;
static bool counting;
static FILE *out;

static void write_counts(void)
{
    for (struct instruction *one = newest; one != NULL; one = one->older) {
        if (one->count)
            fprintf(out, "%ld %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", step,
                one->address, one->bytes, one->count, one->taken);
        one->count = one->taken = 0;
    }
}

static void on_begin(unsigned processor, void *data)
{
    (void)processor, (void)data;
    counting = true;
    step = -1;
    last = NULL;
}

static void on_end(unsigned processor, void *data)
{
    (void)processor, (void)data;
    if (counting)
        write_counts();
    counting = false;
    fflush(out);
}

static void on_step(unsigned processor, void *data)
{
    (void)processor;
    if (counting) {
        write_counts();
        step = ((struct mark *)data)->step;
    }
}

static void on_instruction(unsigned processor, void *data)
{
    struct instruction *const now = data;
    (void)processor;
    if (!counting)
        return;
    if (last != NULL && now->address != last->address + last->bytes)
        last->taken++;
    now->count++;
    last = now;
}

static void on_block(uint64_t id, struct qemu_plugin_tb *block)
{
    (void)id;
    for (size_t n = 0; n < qemu_plugin_tb_n_insns(block); n++) {
        struct qemu_plugin_insn *const place = qemu_plugin_tb_get_insn(block, n);
        struct instruction *const one = calloc(1, sizeof *one);
        if (one == NULL)
            abort();
        one->address = qemu_plugin_insn_vaddr(place);
        one->bytes = qemu_plugin_insn_size(place);
        one->older = newest;
        newest = one;
        if (one->address == begin)
            qemu_plugin_register_vcpu_insn_exec_cb(place, on_begin, 0, NULL);
        if (one->address == end)
            qemu_plugin_register_vcpu_insn_exec_cb(place, on_end, 0, NULL);
        for (size_t i = 0; i < mark_count; i++)
            if (marks[i].address == one->address)
                qemu_plugin_register_vcpu_insn_exec_cb(place, on_step, 0, &marks[i]);
        qemu_plugin_register_vcpu_insn_exec_cb(place, on_instruction, 0, one);
    }
}

static bool read_marks(const char *path)
{
    FILE *const file = fopen(path, "r");
    struct mark one;
    if (file == NULL)
        return false;
    while (fscanf(file, "%" SCNu64 " %ld", &one.address, &one.step) == 2) {
        struct mark *const more = realloc(marks, (mark_count + 1) * sizeof *marks);
        if (more == NULL)
            abort();
        marks = more;
        marks[mark_count++] = one;
    }
    fclose(file);
    return true;
}

VISIBLE int qemu_plugin_install(uint64_t id, const void *about, int count, char **arguments)
{
    (void)about;
    for (int i = 0; i < count; i++) {
        char *const equals = strchr(arguments[i], '=');
        const char *const value = equals == NULL ? "" : equals + 1;
        if (strncmp(arguments[i], "out=", 4) == 0)
            out = fopen(value, "w");
        else if (strncmp(arguments[i], "begin=", 6) == 0)
            begin = strtoull(value, NULL, 0);
        else if (strncmp(arguments[i], "end=", 4) == 0)
            end = strtoull(value, NULL, 0);
        else if (strncmp(arguments[i], "steps=", 6) == 0 && !read_marks(value))
            return 1;
    }
    if (out == NULL)
        return 1;
    qemu_plugin_register_vcpu_tb_trans_cb(id, on_block);
    return 0;
}
