"""Common to all frontends: emission of graphs with constant folding, sizes, parts, bodies."""
