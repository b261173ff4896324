"""What instruction sets can compute: a file for each small family of instructions.

A module says in ``ENCODINGS`` what its instructions mean, which processors have them, and how LLVM
and C spell them; :mod:`modelcc.targets.isa.table` finds it.
"""
