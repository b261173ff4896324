/*
 * ${name}_weights.c: ${name}_weights.bin in memory, checked.
 *
 * On Unix the file is mapped, so that processes share it; with ${NAME}_NO_MMAP, and elsewhere, it
 * is read. The digest is SHA-256 (FIPS 180-4), which `sha256sum` computes, too.
 */
#if !defined(${NAME}_NO_MMAP) && (defined(__unix__) || defined(__APPLE__))
#define USE_MMAP 1
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE
#endif
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#else
#define USE_MMAP 0
#include <stdio.h>
#include <stdlib.h>
#endif

#include <string.h>

#include "${name}.h"

static const uint32_t rounds[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t rotated(uint32_t x, int by) { return x >> by | x << (32 - by); }

/* One block of 64 bytes. */
static void digest_block(uint32_t state[8], const unsigned char *block)
{
    uint32_t w[64];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 |
            (uint32_t)block[4 * i + 2] << 8 | block[4 * i + 3];
    for (int i = 16; i < 64; i++) {
        const uint32_t a = w[i - 15], b = w[i - 2];
        w[i] = w[i - 16] + (rotated(a, 7) ^ rotated(a, 18) ^ a >> 3) + w[i - 7] +
            (rotated(b, 17) ^ rotated(b, 19) ^ b >> 10);
    }
    uint32_t s[8];
    memcpy(s, state, sizeof s);
    for (int i = 0; i < 64; i++) {
        const uint32_t sum1 = rotated(s[4], 6) ^ rotated(s[4], 11) ^ rotated(s[4], 25);
        const uint32_t choice = (s[4] & s[5]) ^ (~s[4] & s[6]);
        const uint32_t first = s[7] + sum1 + choice + rounds[i] + w[i];
        const uint32_t sum0 = rotated(s[0], 2) ^ rotated(s[0], 13) ^ rotated(s[0], 22);
        const uint32_t majority = (s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]);
        memmove(s + 1, s, 7 * sizeof *s);
        s[4] += first;
        s[0] = first + sum0 + majority;
    }
    for (int i = 0; i < 8; i++) state[i] += s[i];
}

/* The digest in hexadecimal; `bytes` is a multiple of 64. */
static void digest(const unsigned char *data, int64_t bytes, char text[65])
{
    uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
        0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    unsigned char last[64] = {0x80};
    for (int64_t i = 0; i < bytes; i += 64) digest_block(state, data + i);
    for (int i = 0; i < 8; i++)
        last[56 + i] = (unsigned char)((uint64_t)bytes * 8 >> (56 - 8 * i));
    digest_block(state, last);
    for (int i = 0; i < 64; i++) {
        const uint32_t nibble = state[i / 8] >> (28 - 4 * (i % 8)) & 15;
        text[i] = "0123456789abcdef"[nibble];
    }
    text[64] = '\0';
}

${name}_status ${name}_weights_check(const void *weights, int64_t bytes)
{
    char found[65];
    if (weights == NULL) return ${NAME}_NULL_POINTER;
    if (bytes != ${NAME}_WEIGHTS_BYTES) return ${NAME}_WRONG_WEIGHTS;
    digest(weights, bytes, found);
    return strcmp(found, ${NAME}_WEIGHTS_SHA256) == 0 ? ${NAME}_OK : ${NAME}_WRONG_WEIGHTS;
}

#if USE_MMAP

static ${name}_status opened(const char *path, void **memory)
{
    struct stat info;
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return ${NAME}_NO_WEIGHTS;
    ${name}_status status = ${NAME}_OK;
    if (fstat(file, &info) != 0 || !S_ISREG(info.st_mode)) {
        status = ${NAME}_NO_WEIGHTS;
    } else if (info.st_size != ${NAME}_WEIGHTS_BYTES) {
        status = ${NAME}_WRONG_WEIGHTS;
    } else {
        void *pages = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, file, 0);
        if (pages == MAP_FAILED)
            status = ${NAME}_OUT_OF_MEMORY;
        else
            *memory = pages;
    }
    close(file);
    return status;
}

static void closed(void *memory) { munmap(memory, (size_t)${NAME}_WEIGHTS_BYTES); }

#else

static ${name}_status opened(const char *path, void **memory)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL) return ${NAME}_NO_WEIGHTS;
    const size_t bytes = (size_t)${NAME}_WEIGHTS_BYTES;
    ${name}_status status = ${NAME}_OK;
    unsigned char *block = aligned_alloc(${NAME}_ALIGNMENT, bytes);
    if (block == NULL)
        status = ${NAME}_OUT_OF_MEMORY;
    else if (fread(block, 1, bytes, file) != bytes || fgetc(file) != EOF)
        status = ${NAME}_WRONG_WEIGHTS;
    fclose(file);
    if (status == ${NAME}_OK)
        *memory = block;
    else
        free(block);
    return status;
}

static void closed(void *memory) { free(memory); }

#endif

${name}_status ${name}_weights_open(const char *path, const void **weights)
{
    void *memory = NULL;
    if (path == NULL || weights == NULL) return ${NAME}_NULL_POINTER;
    *weights = NULL;
    ${name}_status status = opened(path, &memory);
    if (status != ${NAME}_OK) return status;
    status = ${name}_weights_check(memory, ${NAME}_WEIGHTS_BYTES);
    if (status == ${NAME}_OK)
        *weights = memory;
    else
        closed(memory);
    return status;
}

void ${name}_weights_close(const void *weights)
{
    if (weights != NULL) closed((void *)weights);
}
