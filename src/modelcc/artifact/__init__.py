"""Compiled models as files. Importable without the compiler."""
