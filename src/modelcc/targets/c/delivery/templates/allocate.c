/* Keeps what was given, by what it is for, to be freed at the end. */
static void *given[${count}];

static void *allocate(void *context, int64_t which, int64_t bytes)
{
    (void)context;
    free(given[which]);
    given[which] = aligned_alloc(64, ((size_t)bytes / 64 + 1) * 64);
    return given[which];
}

