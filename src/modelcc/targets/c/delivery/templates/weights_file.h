/* The weights are in ${name}_weights.bin: as they lie in memory, little-endian. */
#define ${NAME}_WEIGHTS_BYTES INT64_C(${size})
#define ${NAME}_WEIGHTS_SHA256 \
    "${sha256}"

/*
 * Maps the file at `path` into memory, or reads it where there is no mmap, and checks its size and
 * digest. *weights is NULL if that fails. Give it back to ${name}_weights_close.
 */
${name}_status ${name}_weights_open(const char *path, const void **weights);
void ${name}_weights_close(const void *weights);

/* Whether `bytes` bytes of memory (from a file system or flash of your own) are the weights. */
${name}_status ${name}_weights_check(const void *weights, int64_t bytes);

