/* Calls a compiled model once: aarch64_runner REQUEST CONSTANTS REPLY; see aarch64_target.py. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

extern int32_t ENTRY(void **inputs, void **outputs, void **constants, void *arena,
                     int64_t *sizes, void *pool, void *host);

typedef struct {
  int64_t bytes; /* -1: not asked for */
  void *data;
} block;

typedef struct {
  void *(*allocate)(void *context, int64_t which, int64_t bytes);
  void *context;
} host_table;

static void check(int holds, const char *what) {
  if (holds) return;
  fprintf(stderr, "aarch64_runner: %s\n", what);
  exit(1);
}

static void *aligned(int64_t bytes) {
  void *data = aligned_alloc(64, ((size_t)bytes / 64 + 2) * 64);
  check(data != NULL, "no memory");
  return data;
}

static void *given(FILE *file, int64_t bytes) {
  void *data = aligned(bytes);
  check(fread(data, 1, (size_t)bytes, file) == (size_t)bytes, "the request is cut off");
  return data;
}

static void *allocate(void *context, int64_t which, int64_t bytes) {
  block *one = (block *)context + which;
  one->bytes = bytes;
  return one->data = aligned(bytes);
}

static void tell(FILE *file, const void *data, int64_t bytes) {
  check(fwrite(data, 1, (size_t)bytes, file) == (size_t)bytes, "the reply cannot be written");
}

enum { INPUTS, OUTPUTS, CONSTANTS, SIZES, ALLOCATED, ARENA, COUNTS };

int main(int count, char **arguments) {
  check(count == 4, "give three files");
  FILE *request = fopen(arguments[1], "rb"), *weights = fopen(arguments[2], "rb");
  FILE *reply = fopen(arguments[3], "wb");
  check(request && weights && reply, "a file cannot be opened");
  int64_t *n = given(request, COUNTS * 8);
  int64_t *in = given(request, n[INPUTS] * 8), *out = given(request, n[OUTPUTS] * 8);
  int64_t *fixed = given(request, n[CONSTANTS] * 8), *sizes = given(request, n[SIZES] * 8);
  void **inputs = aligned(n[INPUTS] * 8), **outputs = aligned(n[OUTPUTS] * 8);
  void **constants = aligned(n[CONSTANTS] * 8), *arena = aligned(n[ARENA] + 8);
  for (int64_t i = 0; i < n[INPUTS]; ++i) inputs[i] = given(request, in[i]);
  for (int64_t i = 0; i < n[OUTPUTS]; ++i) outputs[i] = aligned(out[i]);
  for (int64_t i = 0; i < n[CONSTANTS]; ++i) constants[i] = given(weights, fixed[i]);
  block *blocks = aligned(n[ALLOCATED] * (int64_t)sizeof(block));
  for (int64_t i = 0; i < n[ALLOCATED]; ++i) blocks[i].bytes = -1;
  host_table host = {allocate, blocks};
  int64_t status = ENTRY(inputs, outputs, constants, arena, sizes, NULL, &host);
  tell(reply, &status, 8);
  tell(reply, arena, 8);
  tell(reply, sizes, n[SIZES] * 8);
  for (int64_t i = 0; i < n[OUTPUTS]; ++i) tell(reply, outputs[i], out[i]);
  for (int64_t i = 0; i < n[ALLOCATED]; ++i) {
    tell(reply, &blocks[i].bytes, 8);
    if (blocks[i].bytes > 0) tell(reply, blocks[i].data, blocks[i].bytes);
  }
  return fclose(reply) ? 1 : 0;
}
