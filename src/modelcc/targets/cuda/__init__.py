"""NVIDIA GPUs: LLVM text to PTX, PTX to machine code where ``ptxas`` is, and what it says."""
