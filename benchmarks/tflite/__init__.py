"""TFLite's models beside LiteRT with XNNPACK, on one core."""
