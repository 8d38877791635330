"""The steps of the graph, one module each: what is made from what."""
