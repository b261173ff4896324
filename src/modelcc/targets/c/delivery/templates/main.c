/*
 * Runs ${name} once and prints its outputs. Inputs are random, or read from files that hold the
 * elements alone (in NumPy: array.tofile("x.bin")):
 *
 *     ${name}_example${usage}
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "${name}.h"

typedef struct {
    const char *name, *type, *path; /* path: the file to read or write, if any */
    int64_t element_bytes, rank, dims[${rank}];
    void *data;
} tensor;

static tensor inputs_[] = {
${inputs}
};

static tensor outputs_[] = {
${outputs}
};

enum { INPUTS = ${input_count}, OUTPUTS = ${output_count} };

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

static int64_t bytes_of(const tensor *t)
{
    int64_t bytes = t->element_bytes;
    for (int64_t axis = 0; axis < t->rank; axis++) bytes *= t->dims[axis];
    return bytes;
}

/* Memory aligned for anything; never of size 0. */
static void *memory(int64_t bytes)
{
    void *block = bytes < 0 ? NULL : aligned_alloc(64, ((size_t)bytes / 64 + 1) * 64);
    if (block == NULL) fail("memory", "there is not enough");
    return block;
}

static void fill_randomly(tensor *t)
{
    static uint64_t state = 1;
    const int64_t count = bytes_of(t) / t->element_bytes;
    for (int64_t i = 0; i < count; i++) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        const double unit = (double)(state >> 11) * 0x1p-53; /* 0 to 1 */
        const float number = (float)(2 * unit - 1);
        if (strcmp(t->type, "f32") == 0)
            ((float *)t->data)[i] = number;
        else if (strcmp(t->type, "f64") == 0)
            ((double *)t->data)[i] = 2 * unit - 1;
        else if (strcmp(t->type, "f16") == 0) /* 1 to 2 */
            ((uint16_t *)t->data)[i] = (uint16_t)(0x3c00 | (state >> 54));
        else if (strcmp(t->type, "bf16") == 0) /* 1 to 2 */
            ((uint16_t *)t->data)[i] = (uint16_t)(0x3f80 | (state >> 57));
        else { /* 0 or 1 */
            memset((char *)t->data + i * t->element_bytes, 0, (size_t)t->element_bytes);
            ((char *)t->data)[i * t->element_bytes] = unit < 0.5;
        }
    }
}

static void read_file(tensor *t)
{
    FILE *file = fopen(t->path, "rb");
    const size_t bytes = (size_t)bytes_of(t);
    if (file == NULL) fail(t->path, "cannot be read");
    if (fread(t->data, 1, bytes, file) != bytes || fgetc(file) != EOF)
        fail(t->path, "does not hold as many elements as the input has");
    fclose(file);
}

static void write_file(const tensor *t)
{
    FILE *file = fopen(t->path, "wb");
    const size_t bytes = (size_t)bytes_of(t);
    if (file == NULL || fwrite(t->data, 1, bytes, file) != bytes || fclose(file) != 0)
        fail(t->path, "cannot be written");
}

static void print_element(const tensor *t, int64_t i)
{
    if (strcmp(t->type, "f32") == 0)
        printf(" %.9g", ((const float *)t->data)[i]);
    else if (strcmp(t->type, "f64") == 0)
        printf(" %.17g", ((const double *)t->data)[i]);
    else if (strcmp(t->type, "i64") == 0)
        printf(" %" PRId64, ((const int64_t *)t->data)[i]);
    else if (strcmp(t->type, "i32") == 0)
        printf(" %" PRId32, ((const int32_t *)t->data)[i]);
    else if (strcmp(t->type, "i8") == 0)
        printf(" %d", ((const int8_t *)t->data)[i]);
    else if (t->element_bytes == 1)
        printf(" %u", ((const uint8_t *)t->data)[i]);
    else if (t->element_bytes == 2)
        printf(" 0x%04x", ((const uint16_t *)t->data)[i]);
    else
        printf(" %" PRIu64, t->element_bytes == 4 ? ((const uint32_t *)t->data)[i]
                                                  : ((const uint64_t *)t->data)[i]);
}

static void print_tensor(const tensor *t)
{
    const int64_t count = bytes_of(t) / t->element_bytes, shown = count < 16 ? count : 16;
    printf("%s: %s[", t->name, t->type);
    for (int64_t axis = 0; axis < t->rank; axis++)
        printf("%s%" PRId64, axis ? ", " : "", t->dims[axis]);
    printf("]");
    for (int64_t i = 0; i < shown; i++) print_element(t, i);
    printf("%s\n", shown < count ? " ..." : "");
}

static tensor *named(tensor *tensors, int64_t count, const char *text)
{
    const char *end = strchr(text, '=');
    for (int64_t i = 0; end != NULL && i < count; i++) {
        const size_t length = strlen(tensors[i].name);
        if (length == (size_t)(end - text) && strncmp(text, tensors[i].name, length) == 0) {
            tensors[i].path = end + 1;
            return &tensors[i];
        }
    }
    fail(text, "there is no such input or output; write NAME=FILE");
    return NULL;
}

${dim_names}
${allocate}
int main(int count, char **words)
{
${locals}
    for (int i = 1; i < count; i++) {
        if (i + 1 == count)
            fail(words[i], "options are -i NAME=FILE, -o NAME=FILE${options}");
        const char *option = words[i++], *value = words[i];
        if (strcmp(option, "-i") == 0)
            named(inputs_, INPUTS, value);
        else if (strcmp(option, "-o") == 0)
            named(outputs_, OUTPUTS, value);
${option_cases}
        else
            fail(option, "there is no such option");
    }
${shapes}

    for (int64_t i = 0; i < INPUTS; i++) {
        tensor *t = &inputs_[i];
        t->data = memory(bytes_of(t));
        if (t->path)
            read_file(t);
        else
            fill_randomly(t);
    }
    for (int64_t i = 0; i < OUTPUTS; i++) outputs_[i].data = memory(bytes_of(&outputs_[i]));
${prepare}

    const ${name}_inputs inputs = {${input_fields}};
    ${name}_outputs outputs = {${output_fields}};
    ${name}_status status = ${name}_run(
        ${arguments});
${again}
    if (status != ${NAME}_OK) fail("${name}_run", ${name}_status_text(status));
${results}

    for (int64_t i = 0; i < OUTPUTS; i++) {
        print_tensor(&outputs_[i]);
        if (outputs_[i].path) write_file(&outputs_[i]);
    }
${clean_up}
    for (int64_t i = 0; i < INPUTS; i++) free(inputs_[i].data);
    for (int64_t i = 0; i < OUTPUTS; i++) free(outputs_[i].data);
    free(arena);
    return 0;
}
