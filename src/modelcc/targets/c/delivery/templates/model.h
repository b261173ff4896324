/*
${head}
 */
#ifndef ${NAME}_H
#define ${NAME}_H

#include <stddef.h>
#include <stdint.h>
${includes}

#ifdef __cplusplus
extern "C" {
#endif

/* ---- what functions return */

typedef enum ${name}_status {
${statuses}
} ${name}_status;

/* What a status means, in words; never NULL. */
const char *${name}_status_text(${name}_status status);

/* ---- what the model takes and gives; tensors are row-major, 16-bit floats are their bits */

${dims}
typedef struct ${name}_inputs {
${inputs}
} ${name}_inputs;

typedef struct ${name}_outputs {
${outputs}
} ${name}_outputs;

${sizes}

${states}
/* ---- memory */

/* The arena is scratch memory. Nothing has to be in it before a call, and nothing stays. */
#define ${NAME}_ALIGNMENT 64
${arena}

${weights}
${allocator}
/* ---- running */

/*
 * Computes the outputs from the inputs.
 *
${about_run}
 */
${run}

#ifdef __cplusplus
}
#endif
#endif
