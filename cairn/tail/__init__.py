"""Tail-aware estimation of web-scale numbers from a sample: `cairn.tail.estimate.estimate_tail` is the way in."""
