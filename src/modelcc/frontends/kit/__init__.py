"""What every frontend needs: emission of graphs with known contents, sizes, parts, bodies."""
