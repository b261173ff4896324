"""The StableHLO frontend: :func:`import_stablehlo` turns a module into a graph."""

from modelcc.frontends.stablehlo.frontend import import_stablehlo

__all__ = ["import_stablehlo"]
