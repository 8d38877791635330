"""Search: exact and streaming, with the rank of every judged image, and FAISS indexes beside it."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from cairn.search.index_parameters import Index

__all__ = ["Index", "SearchParameters"]


class SearchParameters(BaseModel):
    """`search` of a system."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    top: Annotated[int, Field(ge=1, le=100_000)] = 1000
    """Images per query that the ranking holds, besides all judged ones."""
    index: Index = Index()
