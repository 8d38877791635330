"""Tail-aware estimation of web-scale numbers from a sample; `estimate.estimate_tail` is the way in."""
