"""Cairn evaluates image retrieval: pure computation, knows neither Dagster nor DVC."""

__version__ = "0.1.0"
