"""Load and run compiled code. Importable without the compiler."""
