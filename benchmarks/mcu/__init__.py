"""Models as C for microcontrollers, built by a cross compiler and run in QEMU: results, exact
numbers of instructions, flash and memory."""
