/* What the caller is asked memory for during a call: outputs, and scratch memory. */
typedef enum ${name}_memory {
${wanted}
} ${name}_memory;

/*
 * `allocate` returns `bytes` bytes for `which` (of the above), aligned to 64, or NULL if there are
 * none, which ends the call. It is asked from the thread that made the call, perhaps
 * several times for the same thing: the last answer counts. The memory is the caller's, to be
 * freed when the call has ended and its outputs have been read.
 */
typedef struct ${name}_allocator {
    void *(*allocate)(void *context, int64_t which, int64_t bytes);
    void *context;
} ${name}_allocator;

