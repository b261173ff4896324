/*
 * ${name}_weights.c: the weights as C arrays, in the order and layout that the code reads them.
 *
 * Halves are their bits. Each array starts at a multiple of 64 bytes.
 */
#include "${name}.h"

#define ALIGNED __attribute__((aligned(64)))

static const struct {
${fields}
} weights ALIGNED = {
${values}
};

_Static_assert(sizeof weights == ${NAME}_WEIGHTS_BYTES, "the arrays lie as the code reads them");

const void *${name}_weights(void)
{
    return &weights;
}
