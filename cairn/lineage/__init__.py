"""Lineage: from a number back to the bytes it rests on."""
