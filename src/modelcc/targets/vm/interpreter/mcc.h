/*
 * mcc.h: runs models that modelcc has written as bytecode (docs/bytecode.md).
 *
 * A model is a file of words in little endian, wherever it lies in memory, at a multiple of 8 bytes.
 * Kernels are those of mcc_kernels.c; a model may be replaced by any other that needs no more.
 * Nothing here allocates memory or keeps any: a model in use is a `mcc_model`, its arena, and the
 * memory of its tensors, all of which are the caller's.
 */
#ifndef MCC_H
#define MCC_H

#include <stdint.h>

#include "mcc_kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifndef MCC_MOST_TENSORS
#define MCC_MOST_TENSORS 16 /* inputs and outputs of a model, together */
#endif
#define MCC_MOST_DEPTH 8 /* branches and loops within each other */
#define MCC_NOWHERE UINT32_C(0xffffffff)

/* What functions return that do not succeed. */
enum {
    MCC_NO_MODEL = -1,    /* no bytecode of this version, or it does not begin at a multiple of 8 */
    MCC_CUT_OFF = -2,     /* shorter than it says */
    MCC_DAMAGED = -3,     /* the checksum differs */
    MCC_NO_KERNEL = -4,   /* `missing` of mcc_model is no kernel of mcc_kernels.c */
    MCC_NOT_BOUNDED = -5, /* something in it would leave the memory that it has */
    MCC_TOO_MANY = -6,    /* more tensors than MCC_MOST_TENSORS, or steps in steps than MCC_MOST_DEPTH */
    MCC_NO_MEMORY = -7    /* a pointer is missing, or no multiple of 8 */
};

/* A kernel: `fits` tells whether it stays within its buffers with these parameters.  A buffer's
 * `types` are the logarithm of its element's bytes (2 bits), the bits of its offset that are 0 (3
 * bits), and 32 if it is written.  The first parameters are elements of each buffer. */
typedef struct {
    uint32_t id[2];
    int32_t (*fits)(const int32_t *parameters);
    void (*run)(void *const *buffers, const int32_t *parameters, int64_t *faults);
    const uint8_t *types;
    uint16_t parameters;
    uint8_t buffers;
    uint8_t checks;
} mcc_kernel;

extern const mcc_kernel mcc_kernels[MCC_KERNELS]; /* by ascending id */

/* A model that has been opened. */
typedef struct {
    const uint8_t *file;
    uint32_t missing[2];
    uint16_t used[MCC_KERNELS];
} mcc_model;

/* An input or output, inputs first.  `room` is where in the arena it may be (or MCC_NOWHERE);
 * `state`: an input that the model changes, and `first` what it is before the first call (NULL:
 * zeros). */
typedef struct {
    const char *name;
    const uint32_t *shape;
    const void *first;
    uint32_t type, rank, bytes, room;
    int32_t state;
} mcc_tensor;

/* Whether all of a file is as it was written: once for each new file.  0, or what is wrong. */
int32_t mcc_verify(const void *file, uint32_t bytes);

/* Makes `model` of a file after looking at each step: no step leaves the arena, the constants and
 * the tensors then, whatever the file.  0, or what is wrong. */
int32_t mcc_open(mcc_model *model, const void *file, uint32_t bytes);

/* Bytes that mcc_run wants as its arena, at a multiple of 8. */
uint32_t mcc_arena_bytes(const mcc_model *model);

uint32_t mcc_inputs(const mcc_model *model);
uint32_t mcc_outputs(const mcc_model *model);
mcc_tensor mcc_tensor_of(const mcc_model *model, uint32_t which);

/* Runs the model once.  `tensors` are the memories of inputs, then of outputs, at multiples of 8;
 * NULL: it is in the arena, at its room.  Several calls with other arenas may be made at the same
 * time.  0, MCC_NO_MEMORY, or the step that ended it: an index in its data was out of range. */
int32_t mcc_run(const mcc_model *model, void *arena, void *const *tensors);

/* Sets the states among `tensors` to what they are before the first call. */
void mcc_reset(const mcc_model *model, void *const *tensors);

/* The nodes of the user's model that a step computes. */
const char *mcc_step_name(const mcc_model *model, int32_t step);

#ifdef __cplusplus
}
#endif

#endif
