/*
 * ${name}_weights.c: ${name}_weights.bin as a part of the program.
 *
 * The assembler reads the file: from the folder that the compiler runs in, or from where
 * -D${NAME}_WEIGHTS_FILE='"path"' says.
 */
#include "${name}.h"

#ifndef __ELF__
#error "this needs an assembler for ELF; emit the weights as a file or as an array instead"
#endif

#ifndef ${NAME}_WEIGHTS_FILE
#define ${NAME}_WEIGHTS_FILE "${name}_weights.bin"
#endif

__asm__(".pushsection .rodata\n"
        ".hidden ${name}_weights_data\n"
        ".globl ${name}_weights_data\n"
        ".balign 64\n"
        "${name}_weights_data:\n"
        ".incbin \"" ${NAME}_WEIGHTS_FILE "\", 0, ${size}\n"
        ".balign 64\n"
        ".popsection\n");

extern const unsigned char ${name}_weights_data[];

const void *${name}_weights(void)
{
    return ${name}_weights_data;
}
