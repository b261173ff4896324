"""Emitter of C (C11 with GNU's vector extensions), and a target that uses it."""
