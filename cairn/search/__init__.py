"""Search: exact and streaming, with the rank of every judged image, and FAISS indexes beside it."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from cairn.search.options import Options


class Index(BaseModel):
    """The FAISS index that is built beside the exact search, and measured against it; see `cairn.search.index`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["none", "flat", "ivf-flat"] = "flat"
    lists: Annotated[int, Field(ge=1, le=1 << 20)] | None = None
    """Inverted lists of `ivf-flat`; null for 4 √(gallery images)."""
    probes: Annotated[int, Field(ge=1, le=1 << 20)] = 16
    """Lists that `ivf-flat` visits per query."""

    @model_validator(mode="after")
    def _visits_what_there_is(self) -> "Index":
        if self.lists is not None and self.probes > self.lists:
            raise ValueError(f"probes is {self.probes}, more than the {self.lists} lists there are")
        return self


class SearchParameters(Options):
    """`search` of a system: what is kept and built, and the options around the exact search."""

    top: Annotated[int, Field(ge=1, le=100_000)] = 1000
    """Images per query that the ranking holds, besides all judged ones."""
    index: Index = Index()
