"""Tensors for computation in Python, and the graphs that they build.

An operation on tensors makes a node of a dataflow graph and computes nothing (`lazy.py`).  Values
are computed on demand, all pending ones as one compiled program (`evaluation.py`); a function of
tensors without values is traced into a graph (`tracing.py`).
"""
