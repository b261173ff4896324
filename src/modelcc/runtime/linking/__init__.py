"""Object files into memory, and the libraries that their code calls."""
