"""A GPU of AMD's, emulated on the host: kernels by their LLVM text."""
