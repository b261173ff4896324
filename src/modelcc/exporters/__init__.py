"""Graphs in forms that other compilers read, one package for each."""
