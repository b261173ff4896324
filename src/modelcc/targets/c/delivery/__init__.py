"""A compiled model as a folder of C: header, code, weights, thread pool, example, CMake file."""
