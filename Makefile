# What people and CI both run.  `make PYTHON=.venv/bin/python test` picks an interpreter.
PYTHON ?= python
# Where `make bench` puts its models, and the engines it runs: PEERS=all adds the slow ones.
MODELS ?= benchmarks/models
PEERS ?= modelcc,modelcc-strict,onnxruntime,openvino,openvino-default

GPU_MODELS ?= resnet50 convnext_tiny vit_base_patch16_224 bert_base gpt2_prefill llama_prefill_512 llama_decode

.PHONY: bench-gpu gpu-emulated amd-emulated gpu-code gpu-code-zoo gpu-zoo bench-train check test test-quick test-costs test-all levels targets webgpu replay bench bench-quick bench-int8 accuracy backends conformance fuzz fuzz-models fuzz-torch fuzz-operands fuzz-artifacts killed fmt docs pool
check:  ## style and types
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m pyright

test:  ## all tests, large matrices in a share that has every value of every parameter, on all cores
	$(PYTHON) -m pytest -q -n auto

test-quick:  ## a slice of every test of every package, on all cores, in a minute
	$(PYTHON) -m pytest -q -n auto --quick

test-costs:  ## which tests are too slow for test-quick, measured one after the other
	$(PYTHON) -m pytest -q --costs

test-all:  ## all tests, and all of every matrix
	$(PYTHON) -m pytest -q -n auto --all-ops

MATRICES = tests/passes/loop tests/ops/test_native.py tests/targets tests/passes/tensor tests/test_models.py \
	tests/test_quantised_models.py tests/test_random_models.py tests/test_control_flow.py
levels:  ## op matrix, models and conformance on code for every processor level this machine has
	@for level in $$($(PYTHON) -m tests.levels); do echo "== $$level"; \
		$(PYTHON) -m pytest -q -n auto --cpu $$level --all-ops $(MATRICES) && \
		MODELCC_CPU=$$level $(PYTHON) -m conformance $(if $(SUITE),--suite $(SUITE)) || exit 1; \
	done

AXIS = tests/ops/test_native.py tests/ops/test_algorithms.py tests/test_models.py tests/test_axis.py
targets:  ## op matrix and models on every target: processor levels, C, installed ones, Arm under qemu; TARGET=name
	@places=$$($(PYTHON) -m tests.axis $(TARGET)) || exit 1; \
	echo "$$places" | while read -r place; do echo "== $$place"; \
		$(PYTHON) -m pytest -q -n auto $$place -m targets $(AXIS) </dev/null || exit 1; \
	done

webgpu:  ## op matrix as shaders, and pages in a browser; needs the webgpu extra, a driver, Chromium
	$(PYTHON) -m pytest -q --all-ops tests/targets/webgpu

gpu-code:  ## all cases of the op matrix as code for sm_80, sm_90a (whose PTX is run by an emulator), gfx942 (whose LLVM text is run, as for AMD's other GPUs) and as SPIR-V; needs ptxas, lld, spirv-val
	$(PYTHON) -m pytest -q -n auto --all-ops tests/targets/cuda tests/targets/amdgpu tests/targets/opencl/test_spirv.py

gpu-code-zoo:  ## models in MODELS (ZOO=pattern of names) as code for sm_80 and sm_90a: spills, occupancy below what is planned, tensor cores without copies beside; needs ptxas, nvdisasm
	$(PYTHON) -m benchmarks.gpu.code $(wildcard $(MODELS)/$(or $(ZOO),*_small).onnx)

gpu-emulated:  ## models in MODELS (ZOO=pattern of names) as PTX, thread by thread, on an emulated GPU against ONNX Runtime; minutes each
	PYTHONPATH=tests $(PYTHON) -m ptx_emulator $(wildcard $(MODELS)/$(or $(ZOO),*_small).onnx)

amd-emulated:  ## models in MODELS (ZOO=pattern of names) as LLVM text for gfx942, thread by thread, against ONNX Runtime; half a minute each; needs lld, cc
	PYTHONPATH=tests $(PYTHON) -m amd_emulator $(wildcard $(MODELS)/$(or $(ZOO),*_small).onnx)

gpu-zoo:  ## the zoo on DEVICES=devices (OpenCL and WebGPU; or opencl:spirv, webgpu:1 ...) against ONNX Runtime; ZOO=small, all or names, REAL=folder
	$(PYTHON) -m benchmarks.accuracy --backend $(or $(DEVICES),devices) --folder $(MODELS) $(if $(REAL),--real $(REAL)) \
		$(if $(filter all,$(ZOO)),,--models $(or $(ZOO),small))

bench-gpu:  ## on an NVIDIA GPU: kernels and models right or wrong, then times beside other engines, as far as SECONDS go, and bars to OUT; PREPARE=1 writes what that takes, anywhere, PACK=file an archive of it with WHEEL=packages
ifdef PREPARE
	$(PYTHON) -m benchmarks.zoo --out $(MODELS) $(GPU_MODELS:%=%_dynamic)
	$(PYTHON) -m benchmarks.gpu $(MODELS)/gpu --prepare --models $(GPU_MODELS:%=$(MODELS)/%_dynamic.onnx) \
		$(if $(PACK),--pack $(PACK)) $(WHEEL:%=--wheel %)
else
	$(PYTHON) -m benchmarks.gpu.needs
	$(PYTHON) -m benchmarks.gpu $(MODELS)/gpu --seconds $(or $(SECONDS),500) $(if $(OUT),--out $(OUT))
endif

replay:  ## kernels that tree BASE (a commit, a folder) makes otherwise than this one; QUICK=1, JSON=file, DIFF=kernel
	$(PYTHON) -m benchmarks.replay $(or $(BASE),HEAD) --folder $(MODELS) $(if $(QUICK),--quick) \
		$(if $(JSON),--json $(JSON)) $(if $(DIFF),--diff $(DIFF))

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

bench-train:  ## training steps of modelcc's layers beside PyTorch and JAX, on one core and on two; needs the bench and jax extras
	$(PYTHON) -m benchmarks.training --threads 1
	$(PYTHON) -m benchmarks.training --threads 2

accuracy:  ## every model of the zoo against ONNX Runtime; REAL=folder adds trained ones
	$(PYTHON) -m benchmarks.accuracy --sizes 3 $(if $(REAL),--real $(REAL))

backends:  ## every model of the zoo through LLVM and through C; results must agree
	$(PYTHON) -m benchmarks.backends --folder $(MODELS)

conformance:  ## the standard's own suite through compiled code; SUITE=folder of another onnx wheel, TARGET=opencl …
	$(PYTHON) -m conformance $(if $(SUITE),--suite $(SUITE)) $(if $(TARGET),--target $(TARGET)) --markdown conformance.md --json conformance.json

fuzz:  ## N broken models from SEED, each in a process with limits; REAL=folder adds trained ones
	$(PYTHON) -m fuzz -n $(or $(N),1000) --seed $(or $(SEED),0) $(if $(REAL),--real $(REAL))

AGREEMENT = $(if $(TARGET),--target $(TARGET)) $(if $(PRECISION),--precision $(PRECISION)) $(if $(SIZE),--size $(SIZE))
GENERATED ?= build/nnsmith
fuzz-models:  ## N random models by NNSmith against ONNX Runtime, on TARGET in PRECISION; needs the bench extra, whose torch writes them
	$(PYTHON) -m pip install -q --no-deps nnsmith  # its own pins would bring another torch
	$(PYTHON) -m pip install -q z3-solver hydra-core hydra-colorlog multipledispatch appdirs
	PYTHONHASHSEED=0 $(PYTHON) -m fuzz.nnsmith_models -n $(or $(N),2000) --out $(GENERATED)
	$(PYTHON) -m fuzz.agreement $(GENERATED) $(AGREEMENT)

TORCH ?= build/torch
fuzz-torch:  ## torch's layers and functions one by one against ONNX Runtime, on TARGET in PRECISION, with dimensions of SIZE; needs the bench extra
	$(PYTHON) -m fuzz.torch_models --out $(TORCH)
	$(PYTHON) -m fuzz.agreement $(TORCH) $(AGREEMENT)

fuzz-operands:  ## operators with extreme run-time operands and empty extents against ONNX Runtime; CPU=x86-64-v2 …
	$(PYTHON) -m fuzz.operands $(if $(CPU),--cpu $(CPU))

fuzz-artifacts:  ## N broken .mcc files from SEED, each in a process with limits
	$(PYTHON) -m fuzz.artifacts -n $(or $(N),2000) --seed $(or $(SEED),0)

killed:  ## a training run that is killed N times at moments from SEED, and must end as if it had not been
	$(PYTHON) -m fuzz.killed_training -n $(or $(N),50) --seed $(or $(SEED),0)

fmt:  ## put the sources into the project's style
	$(PYTHON) -m ruff check --fix .
	$(PYTHON) -m ruff format .

docs:  ## the pages that are made from the sources
	$(PYTHON) -m docs.generate
	$(PYTHON) -m docs.tour

pool:  ## the LLVM text of the thread pool, of runtime/pool.c; needs the pool extra
	$(PYTHON) -m tools.compile_pool
