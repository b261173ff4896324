# What people and CI both run.  `make PYTHON=.venv/bin/python test` picks an interpreter.
PYTHON ?= python
# Where `make bench` puts its models, and the engines it runs: PEERS=all adds the slow ones.
MODELS ?= benchmarks/models
PEERS ?= modelcc,onnxruntime,openvino,openvino-default

.PHONY: check test bench bench-quick bench-int8 accuracy backends conformance fuzz fmt docs
check:  ## style and types
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m pyright

test:  ## all tests, on all cores
	$(PYTHON) -m pytest -q -n auto

bench:  ## side by side with other engines: tables, JSON and a plot; needs the bench extra
	$(PYTHON) -m benchmarks.zoo --all --out $(MODELS)
	$(PYTHON) -m benchmarks.compare --folder $(MODELS) --peers $(PEERS)

bench-quick:  ## the same on few models, in a few minutes
	$(PYTHON) -m benchmarks.zoo --short --out $(MODELS)
	$(PYTHON) -m benchmarks.compare --short --folder $(MODELS) --peers $(PEERS)

COMMA := ,
QUANTISED = resnet50 mobilenetv2_100 mobilenetv3_large_100 efficientnet_b0 distilbert bert_base
DYNAMIC = bert_base lstm
INT8 = $(subst $() $(),$(COMMA),$(QUANTISED:=_qdq) $(DYNAMIC:=_dynamic_int8))
bench-int8:  ## quantised models on one core, as ONNX Runtime quantises them, against ONNX Runtime, in time and in steps
	$(PYTHON) -m benchmarks.zoo $(QUANTISED) lstm --out $(MODELS)
	$(PYTHON) -m benchmarks.zoo.quantise $(QUANTISED) --activations u8 --folder $(MODELS)
	$(PYTHON) -m benchmarks.zoo.quantise $(DYNAMIC) --dynamic --folder $(MODELS)
	$(PYTHON) -m benchmarks.compare --folder $(MODELS) --peers modelcc,onnxruntime --threads 1 \
		--models $(INT8)
	$(PYTHON) -m benchmarks.accuracy --folder $(MODELS) --no-light --models $(INT8)

accuracy:  ## every model of the zoo against ONNX Runtime; REAL=folder adds trained ones
	$(PYTHON) -m benchmarks.accuracy --sizes 3 $(if $(REAL),--real $(REAL))

backends:  ## every model of the zoo through LLVM and through C; results must agree
	$(PYTHON) -m benchmarks.backends --folder $(MODELS)

conformance:  ## the standard's own suite through compiled code; SUITE=folder of another onnx wheel
	$(PYTHON) -m conformance $(if $(SUITE),--suite $(SUITE)) --markdown conformance.md --json conformance.json

fuzz:  ## N broken models from SEED, each in a process with limits; REAL=folder adds trained ones
	$(PYTHON) -m fuzz -n $(or $(N),1000) --seed $(or $(SEED),0) $(if $(REAL),--real $(REAL))

fmt:  ## put the sources into the project's style
	$(PYTHON) -m ruff check --fix .
	$(PYTHON) -m ruff format .

docs:  ## the pages that are made from the sources
	$(PYTHON) -m docs.generate
	$(PYTHON) -m docs.tour
