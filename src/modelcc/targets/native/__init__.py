"""From LLVM text to object files: machines, compilation, caching, parallel builds."""
