"""Export of graphs to formats of other compilers, one package for each."""
