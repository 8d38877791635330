"""Encoders: from an image (or a text) to descriptors."""
