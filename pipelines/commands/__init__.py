"""The commands of `cairn`, one module each; what they need is imported when they run."""
