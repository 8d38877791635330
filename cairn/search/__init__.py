"""Search: exact and streaming, with the rank of every judged image, and FAISS indexes beside it."""

from typing import Annotated

from pydantic import Field

from cairn.search.index_parameters import Index
from cairn.search.options import Options

__all__ = ["Index", "SearchParameters"]


class SearchParameters(Options):
    """`search` of a system: what is kept and built, and the options around the exact search."""

    top: Annotated[int, Field(ge=1, le=100_000)] = 1000
    """Images per query that the ranking holds, besides all judged ones."""
    index: Index = Index()
