"""Fuzzing with invalid models: mutants of real ones and of the standard's suite; ``make fuzz`` runs
it."""
