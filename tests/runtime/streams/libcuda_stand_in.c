/* What stands for NVIDIA's driver below its Python package: the functions that devices call, on the host's memory.
   Kernels compute nothing; what launches, maps and memory may not be is an error, told on stderr. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int R;
typedef uint64_t P;
typedef struct { unsigned char *image; size_t size; } Module;
typedef struct { char name[256]; int shared; } Function;
enum { INVALID = 1, MEMORY = 2, NOT_FOUND = 500, CAPTURE = 900 };

static int recording;
static enum { NOTHING, KERNEL, OTHER } last; /* what a recording has */
static P begins[1 << 16], ends[1 << 16];
static int places;

static R bad(int code, const char *what) { fprintf(stderr, "refused: %s\n", what); return code; }
static int there(P p, size_t n) {
    if (!n) return 1;
    for (int i = 0; i < places; i++) if (begins[i] <= p && p + n <= ends[i]) return 1;
    return 0;
}

R cuInit(unsigned f) { return f ? bad(INVALID, "cuInit") : 0; }
R cuGetErrorName(int e, const char **s) { static char t[64]; snprintf(t, 64, "CUDA_ERROR_%s", e == 1 ? "INVALID_VALUE" : e == 2 ? "OUT_OF_MEMORY" : e == 500 ? "NOT_FOUND" : "OTHER"); *s = t; return 0; }
R cuDriverGetVersion(int *v) { *v = 13000; return 0; }
R cuDeviceGetCount(int *n) { *n = 1; return 0; }
R cuDeviceGet(int *d, int i) { *d = i; return i ? INVALID : 0; }
R cuDeviceGetName(char *s, int n, int d) { snprintf(s, n, "stand-in H100"); return 0; }
R cuDeviceGetAttribute(int *v, int a, int d) { *v = a == 75 ? 9 : 0; return 0; }
R cuDeviceTotalMem_v2(size_t *n, int d) { *n = 80ull << 30; return 0; }
R cuDeviceGetDefaultMemPool(void **p, int d) { *p = (void *)0x77; return 0; }
R cuMemPoolSetAttribute(void *p, int a, void *v) { return p == (void *)0x77 && a == 4 && *(uint64_t *)v == ~0ull ? 0 : bad(INVALID, "pool"); }
R cuMemPoolTrimTo(void *p, size_t n) { return 0; }
R cuMemGetInfo_v2(size_t *f, size_t *t) { *f = *t = 80ull << 30; return 0; }
R cuDevicePrimaryCtxRetain(void **c, int d) { *c = (void *)0x1000; return 0; }
R cuDevicePrimaryCtxRelease_v2(int d) { return 0; }
R cuCtxSetCurrent(void *c) { return c == (void *)0x1000 ? 0 : bad(INVALID, "context"); }
R cuStreamCreate(void **s, unsigned f) { *s = (void *)0x2000; return f == 1 ? 0 : bad(INVALID, "stream flags"); }
R cuStreamDestroy_v2(void *s) { return 0; }
R cuStreamSynchronize(void *s) { return recording ? bad(CAPTURE, "synchronize in a recording") : 0; }
R cuStreamQuery(void *s) { return 0; }
R cuStreamWaitEvent(void *s, void *e, unsigned f) { return 0; }
R cuStreamBeginCapture_v2(void *s, int mode) { recording = 1; last = NOTHING; return mode == 1 ? 0 : bad(INVALID, "mode"); }
R cuStreamEndCapture(void *s, void **g) { recording = 0; *g = (void *)0x3000; return 0; }
R cuGraphInstantiateWithFlags(void **e, void *g, unsigned long long f) { *e = (void *)0x4000; return 0; }
R cuGraphLaunch(void *e, void *s) { return e == (void *)0x4000 ? 0 : bad(INVALID, "graph"); }
R cuGraphDestroy(void *g) { return 0; }
R cuGraphExecDestroy(void *g) { return 0; }
R cuEventCreate(void **e, unsigned f) { *e = (void *)0x5000; return 0; }
R cuEventRecord(void *e, void *s) { return 0; }
R cuEventQuery(void *e) { fprintf(stderr, "asked\n"); return e == (void *)0x5000 ? 0 : bad(INVALID, "event"); }
R cuEventElapsedTime(float *t, void *a, void *b) { *t = 0.01f; return 0; }
R cuEventElapsedTime_v2(float *t, void *a, void *b) { *t = 0.01f; return 0; }
R cuEventDestroy_v2(void *e) { return 0; }

R cuMemAllocAsync(P *p, size_t n, void *s) {
    void *m = 0;
    if (recording) return bad(CAPTURE, "allocation in a recording");
    if (posix_memalign(&m, 256, n)) return MEMORY;
    *p = (P)m;
    begins[places] = *p; ends[places++] = *p + n;
    return 0;
}
R cuMemFreeAsync(P p, void *s) {
    for (int i = 0; i < places; i++) if (begins[i] == p) { begins[i] = begins[--places]; ends[i] = ends[places]; free((void *)p); return 0; }
    return bad(INVALID, "free");
}
R cuMemHostAlloc(void **p, size_t n, unsigned f) { *p = malloc(n); return *p ? 0 : MEMORY; }
R cuMemFreeHost(void *p) { free(p); return 0; }
R cuMemcpyDtoH_v2(void *h, P d, size_t n) { memcpy(h, (void *)d, n); return 0; }
R cuMemcpyDtoHAsync_v2(void *h, P d, size_t n, void *s) { if (!there(d, n)) return bad(INVALID, "DtoH"); memcpy(h, (void *)d, n); return 0; }
R cuMemcpyHtoDAsync_v2(P d, void *h, size_t n, void *s) { if (!there(d, n)) return bad(INVALID, "HtoD"); memcpy((void *)d, h, n); return 0; }
R cuMemcpyDtoDAsync_v2(P d, P h, size_t n, void *s) { if (!there(d, n) || !there(h, n)) return bad(INVALID, "DtoD"); last = OTHER; memmove((void *)d, (void *)h, n); return 0; }
R cuMemsetD8Async(P d, unsigned char v, size_t n, void *s) { if (!there(d, n)) return bad(INVALID, "memset"); last = OTHER; memset((void *)d, v, n); return 0; }
R cuPointerGetAttribute(void *v, int a, P p) { if (a == 2) { *(unsigned *)v = there(p, 1) ? 2 : 1; return 0; } if (a == 9) { *(int *)v = 0; return 0; } return bad(INVALID, "attribute"); }

R cuModuleLoadData(void **m, const void *image) {
    const Elf64_Ehdr *h = image;
    if (memcmp(h->e_ident, ELFMAG, 4)) return bad(218, "no ELF");
    size_t size = h->e_shoff + (size_t)h->e_shnum * h->e_shentsize;
    if (h->e_phoff + (size_t)h->e_phnum * h->e_phentsize > size) size = h->e_phoff + (size_t)h->e_phnum * h->e_phentsize;
    Module *made = malloc(sizeof *made);
    made->image = malloc(size); memcpy(made->image, image, size); made->size = size;
    *m = made; return 0;
}
R cuModuleUnload(void *m) { return 0; }
static const Elf64_Sym *find(Module *m, const char *name) {
    const Elf64_Ehdr *h = (void *)m->image;
    const Elf64_Shdr *s = (void *)(m->image + h->e_shoff);
    for (int i = 0; i < h->e_shnum; i++) if (s[i].sh_type == SHT_SYMTAB) {
        const char *names = (char *)m->image + s[s[i].sh_link].sh_offset;
        const Elf64_Sym *t = (void *)(m->image + s[i].sh_offset);
        for (size_t k = 0; k < s[i].sh_size / sizeof *t; k++) if (!strcmp(names + t[k].st_name, name) && t[k].st_shndx) return t + k;
    }
    return 0;
}
R cuModuleGetFunction(void **f, void *m, const char *name) {
    if (!find(m, name)) { fprintf(stderr, "no %s\n", name); return bad(NOT_FOUND, "function"); }
    Function *made = calloc(1, sizeof *made);
    snprintf(made->name, 256, "%s", name);
    *f = made; return 0;
}
R cuModuleGetGlobal_v2(P *p, size_t *n, void *mod, const char *name) {
    Module *m = mod; const Elf64_Sym *t = find(m, name);
    if (!t) return NOT_FOUND;
    const Elf64_Ehdr *h = (void *)m->image;
    const Elf64_Shdr *s = (void *)(m->image + h->e_shoff);
    *p = (P)(m->image + s[t->st_shndx].sh_offset + t->st_value); *n = t->st_size;
    return 0;
}
R cuFuncSetAttribute(void *f, int a, int v) {
    if (a != 8 || v > 232448) { fprintf(stderr, "%d %d\n", a, v); return bad(INVALID, "shared memory"); }
    ((Function *)f)->shared = v; return 0;
}
R cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned x, unsigned y, unsigned z, unsigned shared, void *s, void **k, void **e) {
    Function *fn = f;
    if (!gx || !gy || !gz || gx > 0x7fffffff || gy > 65535 || gz > 65535) { fprintf(stderr, "%s %u %u %u\n", fn->name, gx, gy, gz); return bad(INVALID, "grid"); }
    if (!x || !y || !z || x * y * z > 1024 || x > 1024 || y > 1024 || z > 64) { fprintf(stderr, "%s %u %u %u\n", fn->name, x, y, z); return bad(INVALID, "threads"); }
    if (shared > 49152 && (int)shared > fn->shared) return bad(INVALID, "shared memory was not asked for");
    if (s != (void *)0x2000 || !k) return bad(INVALID, "stream or parameters");
    fprintf(stderr, "launched %s\n", fn->name);
    last = KERNEL;
    return 0;
}
typedef struct { int id; int pad; unsigned char value[64]; } Attribute;
typedef struct { unsigned gx, gy, gz, x, y, z, shared; void *stream; Attribute *attributes; unsigned count; } Config;
R cuLaunchKernelEx(const Config *c, void *f, void **k, void **e) {
    if (c->count != 1 || c->attributes->id != 6 || *(int *)c->attributes->value != 1) return bad(INVALID, "attributes");
    if (!recording) return bad(INVALID, "attribute outside of a recording");
    if (last != KERNEL) return bad(INVALID, "a kernel ahead of what is no kernel");
    fprintf(stderr, "ahead: ");
    return cuLaunchKernel(f, c->gx, c->gy, c->gz, c->x, c->y, c->z, c->shared, c->stream, k, e);
}
R cuTensorMapEncodeTiled(void *to, int kind, uint32_t rank, void *at, const uint64_t *sizes, const uint64_t *strides, const uint32_t *box, const uint32_t *steps, int inter, int swizzle, int l2, int oob) {
    int size = kind == 0 ? 1 : kind == 6 || kind == 9 ? 2 : 0;
    const char *why = 0;
    if ((P)to % 128) why = "map's place"; /* since CUDA 13; 64 before */
    if (!size) why = "type";
    if (rank < 1 || rank > 5) why = "rank";
    if ((P)at % 16) why = "tensor's place";
    for (unsigned i = 0; i < rank; i++) {
        if (!sizes[i] || sizes[i] > 1ull << 32) why = "size";
        if (!box[i] || box[i] > 256) why = "box";
        if (steps[i] < 1 || steps[i] > 8) why = "steps";
        if (i && (strides[i - 1] % 16 || strides[i - 1] >= 1ull << 40)) why = "strides";
    }
    if (box[0] * size % 16) why = "inner box";
    if (swizzle == 3 && box[0] * size > 128) why = "inner box of swizzled rows";
    if (inter || swizzle != 3 || l2 != 2 || oob) why = "ways";
    if (!why && !there((P)at, 1)) why = "tensor is not there";
    if (why) {
        fprintf(stderr, "kind %d rank %u at %p:", kind, rank, at);
        for (unsigned i = 0; i < rank; i++) fprintf(stderr, " %lu(%u)/%lu", sizes[i], box[i], i ? strides[i - 1] : (uint64_t)size);
        fprintf(stderr, "\n"); return bad(INVALID, why);
    }
    fprintf(stderr, "map of %lu bytes\n", sizes[0] * size);
    memset(to, 1, 128); return 0;
}
R cuGetProcAddress_v2(const char *name, void **f, int version, uint64_t flags, int *found) {
    char t[256]; void *self = dlopen("libcuda.so.1", RTLD_LAZY);
    for (int v = 3; v >= 0; v--) {
        snprintf(t, 256, v > 1 ? "%s_v%d" : "%s", name, v);
        if (!v) snprintf(t, 256, "%sWithFlags", name);
        if ((*f = dlsym(self, t))) { if (found) *found = 0; return 0; }
    }
    if (found) *found = 1;
    return NOT_FOUND;
}
R cuGetProcAddress(const char *name, void **f, int version, uint64_t flags) { return cuGetProcAddress_v2(name, f, version, flags, 0); }
