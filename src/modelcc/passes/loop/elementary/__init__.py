"""Elementary functions as loop-level arithmetic: range reductions and minimax polynomials."""
