"""Emitter of C (C99 with the vector extensions of GCC and Clang), and a target that uses it."""
