/* What a program for a board in QEMU may ask of its host, and marks around what is measured. */
#ifndef BOARD_H
#define BOARD_H

#include <stdint.h>

void board_read(const char *file, void *to, uint32_t bytes);
void board_write(const char *file, const void *from, uint32_t bytes);
void measured_begin(void);
void measured_end(void);

#endif
