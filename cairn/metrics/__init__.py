"""Metrics: one module per family, each citing the definition it follows."""
