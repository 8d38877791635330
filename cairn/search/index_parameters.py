"""Parameters of FAISS indexes, each with its range; a parameter of another kind of index is refused."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_serializer, model_validator

INVERTED = ("lists", "probes")
KEYS = {
    "none": (),
    "flat": (),
    "ivf-flat": INVERTED,
    "ivf-pq": (*INVERTED, "subquantizers", "bits"),
    "hnsw": ("links", "ef_construction", "ef_search"),
    "cagra": ("graph_degree", "intermediate_degree", "itopk"),
}
"""The parameters that each kind has."""
ON_GPU = ("flat", "ivf-flat", "ivf-pq", "cagra")


class Index(BaseModel):
    """The FAISS index that is built beside the exact search, and measured against it; see `cairn.search.index`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["none", "flat", "ivf-flat", "ivf-pq", "hnsw", "cagra"] = "flat"
    device: Literal["cpu", "gpu"] = "cpu"
    """Where the index is built and searched; `cagra` has its graph from a GPU alone, `hnsw` runs on no GPU."""
    lists: Annotated[int, Field(ge=1, le=1 << 20)] | None = None
    """Inverted lists of `ivf-flat` and `ivf-pq`; null for 4 √(gallery images)."""
    probes: Annotated[int, Field(ge=1, le=1 << 20)] = 16
    """Lists that are visited per query."""
    subquantizers: Annotated[int, Field(ge=1, le=1 << 16)] | None = None
    """Pieces that `ivf-pq` codes a descriptor in, a divisor of its dimension; null for pieces of about 8 numbers."""
    bits: Annotated[int, Field(ge=4, le=12)] = 8
    """Bits of the code of a piece (on a GPU: 8)."""
    links: Annotated[int, Field(ge=2, le=256)] = 32
    """Neighbours of an image in the graph of `hnsw` (M of the paper; twice as many on the lowest level)."""
    ef_construction: Annotated[int, Field(ge=1, le=10_000)] = 200
    """Candidates that `hnsw` keeps while it builds."""
    ef_search: Annotated[int, Field(ge=1, le=100_000)] = 256
    """Candidates that `hnsw` keeps while it searches (never fewer than the images asked for)."""
    graph_degree: Annotated[int, Field(ge=2, le=512)] = 64
    """Neighbours of an image in the graph of `cagra`."""
    intermediate_degree: Annotated[int, Field(ge=2, le=1024)] = 128
    """The same before the graph is pruned."""
    itopk: Annotated[int, Field(ge=1, le=4096)] = 256
    """Candidates that `cagra` keeps while it searches (never fewer than the images asked for)."""

    @model_validator(mode="after")
    def _fits_its_kind(self) -> "Index":
        if self.lists is not None and self.probes > self.lists:
            raise ValueError(f"probes is {self.probes}, more than the {self.lists} lists there are")
        allowed = KEYS[self.kind]
        for name, field in type(self).model_fields.items():
            if name not in ("kind", "device", *allowed) and getattr(self, name) != field.default:
                has = ", ".join(allowed) or "none"
                raise ValueError(f"{name} is no parameter of kind {self.kind}, which has: {has}")
        if self.device == "gpu" and self.kind not in (*ON_GPU, "none"):
            raise ValueError(f"device gpu is allowed for the kinds {', '.join(ON_GPU)}, not for {self.kind}")
        if self.kind == "cagra" and self.device != "gpu":
            raise ValueError("kind cagra needs device: gpu")
        if self.kind == "ivf-pq" and self.device == "gpu" and self.bits != 8:
            raise ValueError(f"bits is {self.bits}; on a GPU 8 is allowed")
        if self.intermediate_degree < self.graph_degree:
            raise ValueError(
                f"graph_degree is {self.graph_degree}, more than the intermediate_degree {self.intermediate_degree}"
            )
        return self

    @model_serializer
    def _as_given(self) -> dict[str, Any]:
        """What is recorded: nothing that does not matter to this kind."""
        return {"kind": self.kind} | ({"device": self.device} if self.device != "cpu" else {}) | self.own()

    def own(self) -> dict[str, Any]:
        """The parameters of this kind, as given."""
        return {name: getattr(self, name) for name in KEYS[self.kind]}
