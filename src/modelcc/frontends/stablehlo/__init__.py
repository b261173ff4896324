"""The StableHLO frontend: :func:`import_stablehlo` converts a module to a graph."""

from modelcc.frontends.stablehlo.frontend import import_stablehlo

__all__ = ["import_stablehlo"]
