"""Output of a model in any form: levels, code, a folder of C."""
