"""Tensors that Python code computes with, and the graphs that come of them.

An operation on tensors makes a node of a dataflow graph and computes nothing (`lazy.py`).  Values
are computed when somebody looks at them, all that is pending as one compiled program
(`evaluation.py`); a function of tensors without values is traced into a graph (`tracing.py`).
"""
