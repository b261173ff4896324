"""LLVM text in, machine code out.

How LLVM text should be written, from measurements with LLVM 22 on one Zen 5 core (f32 peak
250 GFLOP/s): a 128x768x768 GEMM, a 3x3 convolution over 14x14x256 and a depthwise convolution
in blocks of 16 channels, and an elementwise exp.

- Accumulators may be `alloca`s (one per vector, or one array indexed by constants) with a load
  and a store at every step: the optimiser yields the same instructions as for hand-written phis, in
  the same time.
- Give every function the attributes of `machine.function_attributes`. Without the scheduling
  model named there, big tiles spill: see `machine.tuning_cpu`. It is a function attribute, so
  nothing global in the process changes. Rows x vectors + vectors + 1 must be at most the number
  of registers (32 with AVX-512): a 7x4 tile (33) always spills.
- Full index expressions in every `getelementptr` are as fast as incremented pointers, and no
  slower to compile (the back end folds constant offsets into addressing modes).  Nor is hoisting of
  loop invariants by hand worthwhile: LLVM does it.
- Write loops bottom-tested with one `phi` for the index, `nuw nsw` on index arithmetic,
  `inbounds` on addresses, explicit alignment on loads and stores, `noalias` on parameters that
  never overlap (up to 5 % for a depthwise kernel, nothing for GEMM and exp; `alias.scope` metadata
  gives the same where parameters cannot be `noalias`).
- `llvm.fma` and `fmul contract`/`fadd contract` yield the same code with an FMA instruction;
  without one `llvm.fma` becomes a call to `fmaf`, so use `contract` there.
- Order matters: an input vector that several outputs use is loaded once, next to its uses
  (depthwise 7x2 tile: 45 spills in tap order, none in input order).
- Tails: `llvm.masked.load/store` with constant masks become one masked move. Reductions:
  `llvm.vector.reduce.fadd` needs `reassoc`, else it is a chain of 16 scalar adds.
- Pipeline: O2 and O3 give equally fast code for loops that are already scheduled, O1 spills
  in one tile of four. A 28 accumulator kernel takes 80-110 ms in all with O2, 45-55 ms with
  `optimize=1` below (clean-up only), and runs as fast. But `optimize=1` does not move memory
  accesses out of loops: accumulators must be local (a sum kept in a buffer: 20 GFLOP/s, not 35).
- Loop strength reduction takes half of LLVM's time for unrolled tiles, whose many offsets it
  combines with each other. With addressing modes of a base, a scaled index and an offset (x86), it
  gains nothing (models of the zoo run 0.98 to 1.01 times as long without), so it is disabled.
  So it is for SPIR-V: it rewrites `x mod 4` as a truncation to two bits, which LLVM 22 widens to
  eight there (llvm-project pull request 191393), and results are wrong.
- Of O2, the function simplification passes are enough if nothing is to be inlined: the later ones
  are for loops that LLVM has vectorised or unrolled.  Four of five kernels of the zoo become the
  same machine code, others differ in register allocation and instruction order, in two thirds of
  the optimiser's time.
- The vector combiner of LLVM 22 aborts at a shuffle of two vector selects by one bool
  (`foldShuffleOfSelects` assumes vector conditions), so it is disabled; most kernels never meet
  it, as it is not among the function simplification passes.
- llvmlite holds one lock around LLVM: threads do not compile in parallel, processes do.
"""

import hashlib
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Literal, cast

import llvmlite.binding as llvm

from modelcc.runtime.machine import tiles_permitted
from modelcc.targets.native.diagnostics import CodegenError, parse_failure, verify_failure
from modelcc.targets.native.machine import Machine, simd_bits

_FLAGS = Lock()
"""Held by the thread that has changed LLVM's global flags."""

_STRENGTH_REDUCTION = "-disable-lsr"
_VECTOR_COMBINE = "-disable-vector-combine"


@dataclass(frozen=True)
class CodegenOptions:
    """How LLVM compiles a module.

    `optimize`: 0 nothing (quickest, for debugging), 1 clean-up only (memory to registers, control
    flow, inlining of `alwaysinline`; good for tuning runs), 2 the function passes of LLVM's O2, 3
    LLVM's O3.  `vectorize` and `unroll` switch on LLVM's own loop transformations, off by default
    because the loop level has already made these decisions.
    """

    optimize: Literal[0, 1, 2, 3] = 2
    vectorize: bool = False
    unroll: bool = False
    relocation: Literal["pic", "static"] = "pic"
    code_model: Literal["small", "medium", "large"] = "small"
    abi: str = ""


def compile_llvm(text: str, machine: Machine, options: CodegenOptions = CodegenOptions()) -> bytes:
    """Object file (ELF, Mach-O, COFF or wasm, by the triple) of an LLVM module.

    Raises CodegenError, with the offending line, if the text is not valid LLVM.
    """
    with _parsed(text) as module, _target_machine(machine, options) as target:
        _optimize(module, machine, options, target)
        with _machine_code(machine):
            return target.emit_object(module)


def assembly(text: str, machine: Machine, options: CodegenOptions = CodegenOptions()) -> str:
    """Assembly text (PTX for nvptx) of an LLVM module; raises like `compile_llvm`."""
    with _parsed(text) as module, _target_machine(machine, options) as target:
        _optimize(module, machine, options, target)
        with _machine_code(machine):
            return target.emit_assembly(module)


def llvm_folder() -> Path:
    """Folder of LLVM's library."""
    return Path(llvm.__file__).resolve().parent


def llvm_version() -> str:
    """Version of the LLVM that generates code, as "22.1.0"."""
    return ".".join(map(str, cast("tuple[int, ...]", llvm.llvm_version_info)))


def host_machine() -> Machine:
    """The machine this process runs on, with every feature it reports."""
    flags = str(llvm.get_host_cpu_features().flatten(sort=True))  # "-amx-tile,+avx,..."
    features = tuple(flag for flag in flags.split(",") if flag)
    if "+amx-tile" in features and not tiles_permitted():
        features = tuple(flag.replace("+amx", "-amx") for flag in features)
    triple = llvm.get_process_triple().replace("arm64-", "aarch64-", 1)
    return Machine(triple, llvm.get_host_cpu_name(), features, simd_bits(triple, features))


def object_key(text: str, machine: Machine, options: CodegenOptions) -> str:
    """Hexadecimal SHA-256 of all that determines the object file made from `text`."""
    parts = (text, repr(machine), repr(options), llvm_version())
    digest = hashlib.sha256()
    for part in parts:
        encoded = part.encode()
        digest.update(len(encoded).to_bytes(8, "little") + encoded)
    return digest.hexdigest()


def _target_machine(machine: Machine, options: CodegenOptions) -> llvm.TargetMachine:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    llvm.initialize_native_asmparser()  # for inline assembly
    try:
        target = llvm.Target.from_triple(machine.triple)
    except RuntimeError as error:
        raise CodegenError(f"LLVM cannot generate code for '{machine.triple}': {error}") from error
    return target.create_target_machine(
        cpu=machine.cpu,
        features=",".join(machine.features),
        opt=0 if options.optimize == 0 else 2,
        reloc=options.relocation,
        codemodel=options.code_model,
        abiname=options.abi,
    )


def _optimize(
    module: llvm.ModuleRef, machine: Machine, options: CodegenOptions, target: llvm.TargetMachine
) -> None:
    if module.triple not in ("", machine.triple):
        raise CodegenError(
            f"the module is written for '{module.triple}', but is compiled for '{machine.triple}'"
        )
    module.triple = machine.triple
    module.data_layout = str(target.target_data)
    tuning = _tuning(options)
    builder = llvm.create_pass_builder(target, tuning)
    if options.optimize == 1:
        _clean_up(module, builder)
        return
    if any(map(_is_always_inlined, _defined(module))):
        inlining = llvm.create_new_module_pass_manager()
        inlining.add_always_inliner_pass()
        inlining.run(module, builder)
    if options.optimize == 2 and not (options.vectorize or options.unroll or _inlines(module)):
        passes = builder.getFunctionPassManager()
        for function in _defined(module):
            passes.run(function, builder)
    else:
        with _without(_VECTOR_COMBINE):
            builder.getModulePassManager().run(module, builder)


def _inlines(module: llvm.ModuleRef) -> bool:
    """Whether some functions are internal to the module."""
    return any(function.linkage == llvm.Linkage.internal for function in _defined(module))


def _is_always_inlined(function: llvm.ValueRef) -> bool:
    return b"alwaysinline" in b" ".join(function.attributes).split()


def _defined(module: llvm.ModuleRef) -> list[llvm.ValueRef]:
    return [function for function in module.functions if not function.is_declaration]


@contextmanager
def _without(flag: str) -> Generator[None]:
    """Disables a pass by a flag of the process, for passes without another switch."""
    with _FLAGS:
        llvm.set_option("modelcc", flag)
        try:
            yield
        finally:
            llvm.set_option("modelcc", f"{flag}=false")


def _machine_code(machine: Machine) -> AbstractContextManager[None]:
    reduces = not machine.architecture.startswith(("x86_64", "spirv"))
    return nullcontext() if reduces else _without(_STRENGTH_REDUCTION)


@contextmanager
def _parsed(text: str) -> Generator[llvm.ModuleRef]:
    # A context of its own: names and types of one module never leak into the next. It must
    # outlive the module, which the garbage collector would not guarantee.
    with llvm.create_context() as context:
        try:
            parsed = llvm.parse_assembly(text, context)
        except RuntimeError as error:
            raise parse_failure(str(error), text) from error
        with parsed as module:
            try:
                module.verify()
            except RuntimeError as error:
                raise verify_failure(str(error), text) from error
            yield module


def _tuning(options: CodegenOptions) -> llvm.PipelineTuningOptions:
    tuning = llvm.create_pipeline_tuning_options(speed_level=options.optimize)
    tuning.loop_vectorization = options.vectorize
    tuning.loop_interleaving = options.vectorize
    tuning.slp_vectorization = options.vectorize
    tuning.loop_unrolling = options.unroll
    return tuning


def _clean_up(module: llvm.ModuleRef, builder: llvm.PassBuilder) -> None:
    passes = llvm.create_new_module_pass_manager()
    passes.add_always_inliner_pass()
    passes.add_sroa_pass()
    passes.add_simplify_cfg_pass()
    passes.run(module, builder)
