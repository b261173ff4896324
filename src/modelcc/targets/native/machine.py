"""Target machines of native code."""

from dataclasses import dataclass

_SIMD_WIDTHS = (
    ("+avx512f", 512),
    ("+avx", 256),
    ("+sse", 128),
    ("+neon", 128),
    ("+simd128", 128),
    ("+v", 128),
    ("+vsx", 128),
    ("+lasx", 256),
    ("+lsx", 128),
)


@dataclass(frozen=True)
class Machine:
    """An LLVM target: where code will run and what it may use there.

    `features` are LLVM feature flags, each with its sign ("+avx512f", "-amx-tile").  `vector_bits`
    is the width of one SIMD register in bits, 0 when there is none.  `tuning` is the processor to
    optimise for, if not `cpu`.
    """

    triple: str
    cpu: str = ""
    features: tuple[str, ...] = ()
    vector_bits: int = 0
    tuning: str = ""

    def __post_init__(self) -> None:
        unsigned = [name for name in self.features if name[:1] not in ("+", "-")]
        if unsigned:
            raise ValueError(f"machine features need a sign, as in '+avx2': {unsigned}")

    @property
    def architecture(self) -> str:
        """First component of the triple: x86_64, aarch64, riscv64, wasm32, ..."""
        return self.triple.split("-", 1)[0]


def simd_bits(triple: str, features: tuple[str, ...]) -> int:
    """Width in bits of a SIMD register on a machine with these features, 0 without SIMD."""
    if triple.startswith(("aarch64", "arm64")) and "-neon" not in features:
        return 128
    if triple.startswith("x86_64") and not features:
        return 128
    return max((bits for name, bits in _SIMD_WIDTHS if name in features), default=0)


def tuning_cpu(machine: Machine) -> str:
    """The processor whose instruction-scheduling model suits register-tiled kernels.

    LLVM's machine scheduler has reordered the 24-28 accumulators of a micro-kernel until they
    no longer fit in registers under the models of recent AMD and Intel processors (Zen 4/5:
    456 spills in the inner loop of a 1x14x2 convolution tile, 111 instead of 246 GFLOP/s).
    Under the Sapphire Rapids model the same tiles have none, so it schedules all AVX-512 code.
    """
    wide = machine.architecture == "x86_64" and "+avx512f" in machine.features
    return "sapphirerapids" if wide else machine.tuning or machine.cpu


def function_attributes(machine: Machine) -> str:
    """Body of the LLVM attribute group that every function compiled for `machine` should have.

    >>> function_attributes(Machine("x86_64-linux-gnu", features=("+avx512f",), vector_bits=512))
    'nounwind "prefer-vector-width"="512" "tune-cpu"="sapphirerapids"'
    """
    attributes = ["nounwind"]
    if machine.vector_bits:
        attributes.append(f'"prefer-vector-width"="{machine.vector_bits}"')
    if tuning_cpu(machine) != machine.cpu:
        attributes.append(f'"tune-cpu"="{tuning_cpu(machine)}"')
    return " ".join(attributes)
