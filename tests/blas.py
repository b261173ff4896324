"""A small BLAS, built from C, so that calls of libraries are tested where none is installed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

needs_compiler = pytest.mark.skipif(not shutil.which("cc"), reason="there is no C compiler")

_GEMM = """
void cblas_{letter}gemm(int layout, int ta, int tb, int m, int n, int k, {type} alpha,
                        const {type} *a, int lda, const {type} *b, int ldb, {type} beta,
                        {type} *c, int ldc)
{{
    (void)layout, (void)beta;
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {{
            {type} sum = 0;
            for (int l = 0; l < k; l++)
                sum += (ta == 112 ? a[l * lda + i] : a[i * lda + l])
                     * (tb == 112 ? b[j * ldb + l] : b[l * ldb + j]);
            c[i * ldc + j] = alpha * sum;
        }}
}}
"""
_REST = """
static int threads = 64;
void openblas_set_num_threads(int count) {{ threads = count; }}
int openblas_get_num_threads(void) {{ return threads; }}
const char *openblas_get_config(void) {{ return "OpenBLAS 1.2.3 {words}"; }}
"""


def blas_source(words: str = "", letters: str = "sd") -> str:
    """Its C."""
    types = {"s": "float", "d": "double"}
    gemms = (_GEMM.format(letter=letter, type=types[letter]) for letter in letters)
    return "".join((*gemms, _REST.format(words=words)))


def small_blas(folder: Path, words: str = "", letters: str = "sd") -> Path:
    """``libopenblas.so`` in ``folder``, with the products of these types, built with ``words``."""
    source, library = folder / "blas.c", folder / "libopenblas.so"
    source.write_text(blas_source(words, letters))
    command = ["cc", "-O2", "-shared", "-fPIC", "-o", str(library), str(source)]
    subprocess.run(command, check=True)
    return library
