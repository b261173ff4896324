"""All subsets."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from modelcc.subsets.cmsis_nn import CMSIS_NN
from modelcc.subsets.coral_edgetpu import CORAL_EDGETPU
from modelcc.subsets.ethos_u import ETHOS_U55, ETHOS_U65
from modelcc.subsets.names import SUBSET_NAMES
from modelcc.subsets.subset import Subset
from modelcc.subsets.tflm import TFLM

SUBSETS: Mapping[str, Subset] = MappingProxyType(
    dict(zip(SUBSET_NAMES, (CORAL_EDGETPU, ETHOS_U55, ETHOS_U65, TFLM, CMSIS_NN), strict=True))
)
"""By the names of ``modelcc check --target``."""
