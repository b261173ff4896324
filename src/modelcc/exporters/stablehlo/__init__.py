"""StableHLO text of a graph: :func:`export_stablehlo`."""

from modelcc.exporters.stablehlo.graph import export_stablehlo

__all__ = ["export_stablehlo"]
