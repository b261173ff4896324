/*
 * Starts a Cortex-M or a RISC-V in QEMU and talks to the host by Arm's semihosting (ARM IHI 0100,
 * and RISC-V's version of it): operation and address of its arguments in the first two registers,
 * then a breakpoint.  Unused stack is filled with a pattern before main; how much of it is left
 * afterwards is written to stack.bin.
 */
#include "board.h"

/* Loops stay loops: functions of a library would be counted as the model's. */
#pragma GCC optimize("no-tree-loop-distribute-patterns")

enum { SYS_OPEN = 1, SYS_CLOSE = 2, SYS_WRITE = 5, SYS_READ = 6, SYS_EXIT_EXTENDED = 0x20 };
enum { MODE_READ = 1, MODE_WRITE = 5 };

#define UNTOUCHED 0x5AFE57ACu

extern uint32_t data_load[], data_start[], data_end[], bss_start[], bss_end[], stack_top[];
int main(void);

#ifdef __riscv
#define FIRST "a0"
#define SECOND "a1"
#define BREAK \
    ".balign 16\n .option push\n .option norvc\n" \
    " slli x0, x0, 0x1f\n ebreak\n srai x0, x0, 7\n .option pop"
#define STACK_POINTER "mv %0, sp"
#else
#define FIRST "r0"
#define SECOND "r1"
#define BREAK "bkpt 0xab"
#define STACK_POINTER "mov %0, sp"
#endif

static uintptr_t ask(uintptr_t operation, const void *arguments)
{
    register uintptr_t first __asm__(FIRST) = operation;
    register const void *second __asm__(SECOND) = arguments;
    __asm__ volatile(BREAK : "+r"(first) : "r"(second) : "memory");
    return first;
}

static void leave(uint32_t status)
{
    const uint32_t arguments[2] = {0x20026, status}; /* ADP_Stopped_ApplicationExit */
    ask(SYS_EXIT_EXTENDED, arguments);
    for (;;) {
    }
}

static void transfer(const char *file, uint32_t mode, uint32_t operation, void *memory,
    uint32_t bytes)
{
    uint32_t length = 0;
    while (file[length])
        length++;
    const uintptr_t opening[3] = {(uintptr_t)file, mode, length};
    const uintptr_t handle = ask(SYS_OPEN, opening);
    const uintptr_t moving[3] = {handle, (uintptr_t)memory, bytes};
    if (ask(operation, moving) != 0) /* so many bytes were not moved */
        leave(101);
    ask(SYS_CLOSE, &handle);
}

void board_read(const char *file, void *to, uint32_t bytes)
{
    transfer(file, MODE_READ, SYS_READ, to, bytes);
}

void board_write(const char *file, const void *from, uint32_t bytes)
{
    transfer(file, MODE_WRITE, SYS_WRITE, (void *)from, bytes);
}

__attribute__((noinline)) void measured_begin(void)
{
    __asm__ volatile("");
}

__attribute__((noinline)) void measured_end(void)
{
    __asm__ volatile("");
}

__attribute__((used, aligned(4))) void board_fault(void)
{
    leave(100);
}

__attribute__((noinline)) static uint32_t stack_used(void)
{
    const uint32_t *word = bss_end;
    while (*word == UNTOUCHED)
        word++;
    return (uint32_t)((uintptr_t)stack_top - (uintptr_t)word);
}

__attribute__((used)) void reset(void)
{
    uint32_t *here;
#if defined(__ARM_ARCH) && __ARM_ARCH >= 7
    *(volatile uint32_t *)0xE000ED88 |= 0xFu << 20; /* CPACR: floats and vectors may be used */
    __asm__ volatile("dsb\n isb");
#endif
    for (uint32_t *from = data_load, *to = data_start; to < data_end;)
        *to++ = *from++;
    __asm__ volatile(STACK_POINTER : "=r"(here));
    for (uint32_t *word = bss_start; word < bss_end; word++)
        *word = 0;
    for (uint32_t *word = bss_end; word < here - 8; word++)
        *word = UNTOUCHED;
    const int status = main();
    const uint32_t used = stack_used();
    board_write("stack.bin", &used, sizeof used);
    leave((uint32_t)status);
}

#ifdef __riscv
__asm__(
    ".section .vectors, \"ax\"\n"
    " la sp, stack_top\n la t0, board_fault\n"
    " .option push\n .option arch, +zicsr\n csrw mtvec, t0\n .option pop\n"
    " j reset\n .text");
#else
__attribute__((section(".vectors"), used)) static void *const vectors[16] = {
    stack_top, reset, board_fault, board_fault, board_fault, board_fault, board_fault,
};
#endif
