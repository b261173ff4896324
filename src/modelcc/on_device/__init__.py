"""Analysis of a model on a microcontroller: time per layer, comparison of forms."""
