"""Products of matrices and their like (convolutions): tiles by threads, warps and warpgroups."""
