"""The ATen operators that can be imported, by name or by name and overload."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from modelcc.frontends.torch.activation_gradients import ACTIVATION_GRADIENTS
from modelcc.frontends.torch.activations import ACTIVATIONS
from modelcc.frontends.torch.aten import Handler
from modelcc.frontends.torch.attention import ATTENTION
from modelcc.frontends.torch.bags import BAGS
from modelcc.frontends.torch.comparison import COMPARISON
from modelcc.frontends.torch.complex_tensors import FORMULAS
from modelcc.frontends.torch.control import CONTROL
from modelcc.frontends.torch.convolutions import CONVOLUTIONS
from modelcc.frontends.torch.creation import CREATION
from modelcc.frontends.torch.diagonals import DIAGONALS
from modelcc.frontends.torch.distances import DISTANCES
from modelcc.frontends.torch.division import DIVISION
from modelcc.frontends.torch.effects import EFFECTS
from modelcc.frontends.torch.fake_quantization import FAKE_QUANTIZATION
from modelcc.frontends.torch.fractional_pooling import FRACTIONAL_POOLING
from modelcc.frontends.torch.gamma_functions import GAMMA_FUNCTIONS
from modelcc.frontends.torch.gpu_attention import GPU_ATTENTION
from modelcc.frontends.torch.grouped_products import GROUPED_PRODUCTS
from modelcc.frontends.torch.histograms import HISTOGRAMS
from modelcc.frontends.torch.indexing import INDEXING
from modelcc.frontends.torch.iteration import ITERATION
from modelcc.frontends.torch.linear_algebra import LINEAR_ALGEBRA
from modelcc.frontends.torch.norm_gradients import NORM_GRADIENTS
from modelcc.frontends.torch.norms import NORMS
from modelcc.frontends.torch.order import ORDER
from modelcc.frontends.torch.parts import PARTS
from modelcc.frontends.torch.pointwise import POINTWISE
from modelcc.frontends.torch.pooling import POOLING
from modelcc.frontends.torch.products import PRODUCTS
from modelcc.frontends.torch.random import RANDOM
from modelcc.frontends.torch.recurrent import RECURRENT
from modelcc.frontends.torch.recurrent_training import RECURRENT_TRAINING
from modelcc.frontends.torch.reductions import REDUCTIONS
from modelcc.frontends.torch.scatter import SCATTER
from modelcc.frontends.torch.searches import SEARCHES
from modelcc.frontends.torch.segments import SEGMENTS
from modelcc.frontends.torch.special import SPECIAL
from modelcc.frontends.torch.upsampling import UPSAMPLING
from modelcc.frontends.torch.views import VIEWS

_TABLES = (
    FORMULAS,  # those of real tensors take precedence
    *(POINTWISE, DIVISION, COMPARISON, SPECIAL, GAMMA_FUNCTIONS, ITERATION, ACTIVATIONS, CREATION),
    *(SEARCHES, HISTOGRAMS, SEGMENTS, FRACTIONAL_POOLING, GROUPED_PRODUCTS, DISTANCES),
    *(FAKE_QUANTIZATION, ACTIVATION_GRADIENTS),
    *(VIEWS, PARTS, DIAGONALS, INDEXING, SCATTER, BAGS, ORDER, REDUCTIONS, NORMS, NORM_GRADIENTS),
    *(PRODUCTS, LINEAR_ALGEBRA, CONVOLUTIONS, POOLING, UPSAMPLING, ATTENTION, GPU_ATTENTION),
    *(RECURRENT, CONTROL, RECURRENT_TRAINING),
)

HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {name: handler for table in _TABLES for name, handler in table.items()}
)

EXPORTED: Mapping[str, Handler] = MappingProxyType({**HANDLERS, **RANDOM, **EFFECTS})
"""Handlers for exported programs, which draw their own random numbers."""
