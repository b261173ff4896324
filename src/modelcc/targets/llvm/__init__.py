"""Emitter of LLVM IR text from the loop and the program level."""
