"""From a number back to the bytes it came from: the graph of hashes, the way back, and its verification."""

from cairn.lineage.graph import Graph, load_graph
from cairn.lineage.tracing import Trace, trace
from cairn.lineage.verifying import Finding, Verification, verify

__all__ = ["Finding", "Graph", "Trace", "Verification", "load_graph", "trace", "verify"]
