"""The kernels of two trees, text by text: what a change of the compiler changes in its code.

`python -m benchmarks.replay COMMIT` compiles every model of a folder, some small ones and every
sample of every op with the sources of both trees, up to the texts of their kernels, and lists the
kernels that differ.  Nothing is built or run.
"""
