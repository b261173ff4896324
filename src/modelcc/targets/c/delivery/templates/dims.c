static void set_dim(${name}_dims *dims, const char *text)
{
    const char *const names[] = {${names}};
    int64_t *const sizes[] = {${places}};
    const char *end = strchr(text, '=');
    for (size_t i = 0; end != NULL && i < sizeof names / sizeof *names; i++) {
        const size_t length = strlen(names[i]);
        if (length == (size_t)(end - text) && strncmp(text, names[i], length) == 0) {
            *sizes[i] = strtoll(end + 1, NULL, 10);
            return;
        }
    }
    fail(text, "there is no such dimension; write NAME=SIZE");
}

