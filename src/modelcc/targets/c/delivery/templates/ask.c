typedef struct {
    const ${name}_allocator *allocator;
    void **given;
} mcc_asked;

/* Asks the caller for memory, and remembers where it is. */
static void *mcc_ask(void *context, int64_t which, int64_t bytes)
{
    const mcc_asked *asked = context;
    const ${name}_allocator *allocator = asked->allocator;
    if (bytes < 0) return NULL;
    void *memory = allocator->allocate(allocator->context, which, bytes > 0 ? bytes : 1);
    asked->given[which] = memory;
    return memory;
}
