"""Benchmarks: each module turns the files of one benchmark into the common structure."""
