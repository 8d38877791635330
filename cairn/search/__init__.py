"""Search: exact and streaming, and FAISS indexes."""
