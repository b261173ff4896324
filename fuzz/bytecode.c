/*
 * Breaks files of bytecode, opens and runs them: build it with mcc.c, mcc_kernels.c and
 * -fsanitize=address,undefined, which end it at the first access of other memory.
 *
 *     ./fuzz model.mcb CASES SEED
 *
 * Prints how many files were opened and run.  Runs that take long are given up.
 */
#include "mcc.h"

#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

static uint64_t state;
static sigjmp_buf given_up;

static uint32_t number(uint32_t below)
{
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (uint32_t)(state >> 32) % below;
}

static void late(int signal)
{
    (void)signal;
    siglongjmp(given_up, 1);
}

static void watch(long microseconds)
{
    const struct itimerval timer = {{0, 0}, {0, microseconds}};
    setitimer(ITIMER_REAL, &timer, NULL);
}

static void change(uint32_t *word, const uint32_t *words, uint32_t count)
{
    switch (number(9)) {
    case 0: *word = number(UINT32_MAX); break;
    case 1: *word += 1 + number(8); break;
    case 2: *word -= 1 + number(8); break;
    case 3: *word = number(64); break;
    case 4: *word ^= UINT32_C(1) << number(32); break;
    case 5: *word = words[number(count)]; break;
    case 6: *word *= 2; break;
    case 7: *word = UINT32_C(0) - number(64); break;
    default: *word /= 2; break;
    }
}

/* Mostly the head, the calls and the steps, which all lie before the constants. */
static void break_file(uint32_t *words, uint32_t count)
{
    const uint32_t front = words[14] / 4 < count ? words[14] / 4 : count;
    for (uint32_t left = 1 + number(3); left != 0; left--)
        change(words + number(number(8) != 0 && front != 0 ? front : count), words, count);
}

static int run(const uint8_t *file, uint32_t bytes)
{
    static mcc_model model;
    static void *volatile memories[MCC_MOST_TENSORS + 1];
    void *tensors[MCC_MOST_TENSORS];
    if (mcc_open(&model, file, bytes) != 0) return 0;
    const uint32_t inputs = mcc_inputs(&model), count = inputs + mcc_outputs(&model);
    void *arena = memories[count] = malloc(mcc_arena_bytes(&model));
    for (uint32_t i = 0; i < count; i++) {
        const mcc_tensor tensor = mcc_tensor_of(&model, i);
        const int within = tensor.room != MCC_NOWHERE && number(2) != 0;
        tensors[i] = memories[i] = within ? NULL : malloc(tensor.bytes);
        if (memories[i] != NULL) memset(memories[i], (int)number(256), tensor.bytes);
        if (strlen(tensor.name) > bytes) abort();
    }
    memset(arena, (int)number(256), mcc_arena_bytes(&model));
    if (sigsetjmp(given_up, 1) == 0) {
        watch(20000);
        mcc_reset(&model, tensors);
        const int32_t status = mcc_run(&model, arena, tensors);
        if (strlen(mcc_step_name(&model, status)) > bytes) abort();
    }
    watch(0);
    for (uint32_t i = 0; i <= count; i++) free(memories[i]);
    return 1;
}

int main(int count, char **words)
{
    FILE *file = count == 4 ? fopen(words[1], "rb") : NULL;
    if (file == NULL) return 2;
    fseek(file, 0, SEEK_END);
    const uint32_t bytes = (uint32_t)ftell(file);
    uint32_t *whole = malloc(bytes), *broken = malloc(bytes);
    rewind(file);
    if (fread(whole, 1, bytes, file) != bytes) return 2;
    state = 1 + strtoull(words[3], NULL, 10) * UINT64_C(0x9e3779b97f4a7c15);
    signal(SIGALRM, late);
    if (mcc_verify(whole, bytes) != 0 || !run((const uint8_t *)whole, bytes)) return 3;
    long opened = 0;
    const long cases = strtol(words[2], NULL, 10);
    for (long i = 0; i < cases; i++) {
        memcpy(broken, whole, bytes);
        break_file(broken, bytes / 4);
        opened += run((const uint8_t *)broken, bytes);
    }
    printf("%ld of %ld opened\n", opened, cases);
    free(whole), free(broken);
    return 0;
}
