"""Models as C for microcontrollers, cross-compiled and run in QEMU: results, exact instruction
counts, flash and memory."""
