"""The subsets that there are."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from modelcc.subsets.ethos_u import ETHOS_U55, ETHOS_U65
from modelcc.subsets.subset import Subset

SUBSETS: Mapping[str, Subset] = MappingProxyType(
    {subset.name: subset for subset in (ETHOS_U55, ETHOS_U65)}
)
