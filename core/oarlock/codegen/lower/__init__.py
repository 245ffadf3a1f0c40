"""Lowering: from fused groups of array operators to kernels; see ``group``."""
