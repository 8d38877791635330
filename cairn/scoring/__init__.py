"""Scoring of run files in each benchmark's official format: its readers and one `score` function a protocol."""
