"""Descriptor files: Parquet for global, HDF5 for local descriptors."""
