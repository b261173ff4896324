# What people and CI both run.  `make PYTHON=.venv/bin/python test` picks an interpreter.
PYTHON ?= python

.PHONY: check test bench accuracy backends fmt docs
check:  ## style and types
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m pyright

test:  ## all tests, on all cores
	$(PYTHON) -m pytest -q -n auto

bench:  ## side by side with ONNX Runtime on one core; needs the bench extra
	$(PYTHON) -m benchmarks.zoo --all
	$(PYTHON) -m benchmarks.compare --threads 1

accuracy:  ## every model of the zoo against ONNX Runtime; REAL=folder adds trained ones
	$(PYTHON) -m benchmarks.accuracy --sizes 3 $(if $(REAL),--real $(REAL))

backends:  ## every model of the zoo through LLVM and through C; results must agree
	$(PYTHON) -m benchmarks.backends --folder benchmarks/models

fmt:  ## put the sources into the project's style
	$(PYTHON) -m ruff check --fix .
	$(PYTHON) -m ruff format .

docs:  ## the pages that are made from the sources
	$(PYTHON) -m docs.generate
	$(PYTHON) -m docs.tour
