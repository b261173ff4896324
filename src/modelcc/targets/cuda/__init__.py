"""NVIDIA GPUs: LLVM IR to PTX, PTX to machine code if ``ptxas`` is installed, and its resources."""
