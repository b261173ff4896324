"""Names of processors and features that LLVM knows."""

import pytest

from modelcc.targets.native.diagnostics import CodegenError
from modelcc.targets.native.host import BASELINES
from modelcc.targets.native.machine import Machine
from modelcc.targets.native.names import check_names, supported_names
from modelcc.targets.native.toolchain import host_machine


def test_known_names():
    names = supported_names("thumbv7em-none-eabi")
    assert {"cortex-m4", "cortex-m7"} <= set(names.processors)
    assert {"dsp", "fp16"} <= set(names.features)
    assert "znver5" not in names.processors


def test_good_names_pass():
    check_names(host_machine())
    check_names(Machine("aarch64-linux-gnu", "cortex-a76", ("+dotprod", "-sve")))
    check_names(Machine("wasm32-unknown-unknown"))


def test_levels_name_features_that_there_are():
    for name, level in BASELINES.items():
        check_names(Machine("x86_64-linux-gnu", name, level.features))


def test_a_misspelt_processor_is_refused():
    with pytest.raises(CodegenError, match=r"no processor 'cortex-m44' for thumbv7em.*cortex-m4"):
        check_names(Machine("thumbv7em-none-eabi", "cortex-m44"))


def test_a_misspelt_feature_is_refused():
    with pytest.raises(CodegenError, match=r"no feature 'avx512ff' for x86_64.*avx512f"):
        check_names(Machine("x86_64-linux-gnu", "znver5", ("+avx512ff",)))


def test_an_unknown_architecture_is_refused():
    with pytest.raises(CodegenError, match="cannot generate code for 'abacus-none'"):
        check_names(Machine("abacus-none"))
