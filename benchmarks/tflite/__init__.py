"""TFLite models compared with LiteRT and XNNPACK, on one core."""
