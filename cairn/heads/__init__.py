"""A projection head on frozen descriptors: what it is, how it is trained, how it is applied."""
