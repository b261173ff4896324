/* The weights are part of the program. */
#define ${NAME}_WEIGHTS_BYTES INT64_C(${size})

/* Their address, a multiple of ${NAME}_ALIGNMENT. */
const void *${name}_weights(void);

