"""Tail-aware estimation of web-scale numbers from a sample."""
