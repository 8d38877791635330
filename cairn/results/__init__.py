"""The results table: what a number is called, how it is stored, printed, and asked for in SQL."""

from cairn.results.gathering import gather_results
from cairn.results.names import FIELDS, NumberName, resolve
from cairn.results.table import (
    Result,
    collect_results,
    read_results,
    synthetic_benchmarks,
    write_metrics,
    write_results,
)

__all__ = [
    "FIELDS",
    "NumberName",
    "Result",
    "collect_results",
    "gather_results",
    "read_results",
    "resolve",
    "synthetic_benchmarks",
    "write_metrics",
    "write_results",
]
