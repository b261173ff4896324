"""Chains of products whose tiles stay in registers, as in attention's gradients."""
