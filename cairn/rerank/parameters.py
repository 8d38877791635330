"""Parameters of the second stage: `rerank` of a system, method by method, and which steps depend on what."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from cairn.errors import ParameterError

Method = Literal["none", "geometry", "superglobal", "aqe", "k-reciprocal", "ames"]
BY_DESCRIPTORS = ("superglobal", "aqe", "k-reciprocal")
"""Methods that need global descriptors alone; each can also come before another method (`after`)."""
BY_PAIRS = ("geometry", "ames")
"""Methods that look at the local features of a query and of each shortlisted image."""
SHORTLISTS: Mapping[str, int] = {
    "none": 100,
    "geometry": 100,
    "superglobal": 400,
    "aqe": 400,
    "k-reciprocal": 400,
    "ames": 1600,
}
"""How many of each query's first images a method sees where `shortlist` is not given."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Geometry(_Strict):
    """Parameters of `geometry`; see `cairn.rerank.geometry`."""

    local: Literal["encoder", "xfeat"] = "encoder"
    """Whose local features: the encoder's own (RootSIFT), or XFeat's (the extra `xfeat`)."""
    features: Annotated[int, Field(ge=8, le=20_000)] = 700
    """Local features per image that are matched: the strongest."""
    ratio: Annotated[float, Field(gt=0, le=1)] = 0.85
    """A match is kept where its distance is below `ratio` × that of the second best."""
    threshold: Annotated[float, Field(gt=0, le=100)] = 4.0
    """MAGSAC++'s largest noise scale, in pixels of the (reduced) image that features were found in."""
    minimum: Annotated[int, Field(ge=4, le=1000)] = 6
    """Inliers from which on a pair gains anything."""
    weight: Annotated[float, Field(ge=0, le=100)] = 1.0
    """What very many inliers add to the global similarity."""
    saturation: Annotated[float, Field(gt=0, le=10_000)] = 30.0
    """Inliers beyond `minimum` that add half of that."""


class SuperGlobalParameters(_Strict):
    """Parameters of `superglobal`, whose M is the shortlist; see `cairn.rerank.superglobal`."""

    neighbours: Annotated[int, Field(ge=0, le=1000)] = 9
    beta: Annotated[float, Field(ge=0, le=10)] = 0.15


class ExpansionParameters(_Strict):
    """Parameters of `aqe`; see `cairn.rerank.expansion`."""

    neighbours: Annotated[int, Field(ge=1, le=10_000)] = 10
    alpha: Annotated[float, Field(ge=0, le=100)] = 3.0


class ReciprocalParameters(_Strict):
    """Parameters of `k-reciprocal`; see `cairn.rerank.reciprocal`."""

    k1: Annotated[int, Field(ge=1, le=10_000)] = 20
    k2: Annotated[int, Field(ge=1, le=10_000)] = 6
    mix: Annotated[float, Field(ge=0, le=1)] = 0.3


class Diagnostics(_Strict):
    """Cells that are scored besides the reported one, from the same logits: every mix with every temperature."""

    mixes: tuple[Annotated[float, Field(ge=0, le=1)], ...] = (0.0, 0.25, 0.55, 0.75)
    temperatures: tuple[Annotated[float, Field(gt=0, le=100)], ...] = (0.1, 0.3, 1.0)


class AmesTraining(_Strict):
    """How AMES is trained in the graph where no checkpoint is given; see `cairn.rerank.ames_training`."""

    steps: Annotated[int, Field(ge=1, le=10_000_000)] = 400
    triplets: Annotated[int, Field(ge=1, le=10_000)] = 16
    learning_rate: Annotated[float, Field(gt=0, le=1)] = 1e-3
    candidates: Annotated[int, Field(ge=2, le=100_000)] = 100
    """Nearest training images, by global descriptor, among which positives and negatives are drawn."""
    least: Annotated[int, Field(ge=1, le=10_000)] = 10
    """Fewest descriptors per image in a step."""
    start: Literal["random", "matching"] = "matching"
    """`random` as in the paper, or a network that already matches, for training sets of hundreds of images."""
    model_dim: Annotated[int, Field(ge=2, le=4096)] = 64
    heads: Annotated[int, Field(ge=1, le=64)] = 1
    layers: Annotated[int, Field(ge=1, le=64)] = 2
    feedforward: Annotated[int, Field(ge=1, le=65_536)] = 128
    binarized: bool = False
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0

    @model_validator(mode="after")
    def _fits(self) -> "AmesTraining":
        if self.model_dim % self.heads:
            raise ValueError(f"heads = {self.heads} must divide model_dim = {self.model_dim}")
        return self


class Dinov2(_Strict):
    """Local descriptors of DINOv2 with registers; see `cairn.rerank.local.dinov2`."""

    model: str
    """A folder with `config.json` and `model.safetensors`, as Hugging Face transformers writes them."""
    detector: str | None = None
    """The authors' detector checkpoint; null: patch tokens weighted by their norm."""
    longest: Annotated[int, Field(ge=14, le=10_000)] = 770


class BorrowedFiles(_Strict):
    """Local descriptors in HDF5 files of the authors' layout; see `cairn.rerank.local.borrowed`."""

    queries: str
    gallery: Annotated[tuple[str, ...], Field(min_length=1)]
    """One file, or several whose rows follow one another (the gallery's, then the distractors')."""
    query_names: str | None = None
    gallery_names: str | None = None
    """Text files of one id per line, for HDF5 files without ids; null: the benchmark's own order."""


class AmesParameters(_Strict):
    """Parameters of `ames`; see docs/reranking.md."""

    checkpoint: str | None = None
    """The authors' or another checkpoint; null: the network is trained on the benchmark's training images."""
    query_length: Annotated[int, Field(ge=1, le=20_000)] = 600
    gallery_length: Annotated[int, Field(ge=1, le=20_000)] = 50
    """Local descriptors per image: the strongest."""
    mix: Annotated[float, Field(ge=0, le=1)] = 0.55
    """λ: share of the global similarity in the score."""
    temperature: Annotated[float, Field(gt=0, le=100)] = 0.3
    """γ: what logits are multiplied by before the sigmoid."""
    junk_aware: bool = True
    """Also report the published protocol, which moves what a setting ignores behind the shortlist."""
    diagnostics: Diagnostics = Diagnostics()
    dtype: Literal["float32", "float16", "bfloat16"] = "float32"
    """Type that the network computes in."""
    store: Literal["float32", "float16"] = "float32"
    """Type that local descriptors are stored as (SIFT stays 8-bit integers)."""
    dinov2: Dinov2 | None = None
    files: BorrowedFiles | None = None
    """Where local descriptors come from; neither: the encoder's own local features."""
    training: AmesTraining = AmesTraining()

    @model_validator(mode="after")
    def _one_source(self) -> "AmesParameters":
        if self.dinov2 and self.files:
            raise ValueError("dinov2 and files exclude one another: local descriptors come from one of them")
        return self


class Earlier(_Strict):
    """A method by global descriptors that comes before: `after` of `rerank`."""

    method: Literal["superglobal", "aqe", "k-reciprocal"]
    shortlist: Annotated[int, Field(ge=1, le=100_000)] = 400
    superglobal: SuperGlobalParameters = SuperGlobalParameters()
    aqe: ExpansionParameters = ExpansionParameters()
    reciprocal: ReciprocalParameters = ReciprocalParameters()


class RerankParameters(_Strict):
    """`rerank` of a system: the method, how many of each query's first images it sees, and its own keys."""

    method: Method = "none"
    shortlist: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """null: 100 for `geometry`, 400 for methods by descriptors, 1600 for `ames`."""
    after: Earlier | None = None
    """A method by global descriptors whose list this one re-ranks."""
    geometry: Geometry = Geometry()
    superglobal: SuperGlobalParameters = SuperGlobalParameters()
    aqe: ExpansionParameters = ExpansionParameters()
    reciprocal: ReciprocalParameters = ReciprocalParameters()
    ames: AmesParameters = AmesParameters()

    @model_validator(mode="after")
    def _chains(self) -> "RerankParameters":
        if self.after is not None and self.method not in BY_PAIRS:
            raise ValueError(f"after is for the methods {' and '.join(BY_PAIRS)}, not for {self.method}")
        if self.after is not None and self.after.shortlist < self.k:
            raise ValueError(
                f"after.shortlist = {self.after.shortlist} is less than shortlist = {self.k}: scores behind "
                "the first stage's list are not comparable with those in it"
            )
        return self

    @property
    def k(self) -> int:
        """Images per query that the method sees."""
        return self.shortlist or SHORTLISTS[self.method]

    @property
    def block(self) -> BaseModel | None:
        """The method's own keys; None where it has none."""
        return getattr(self, BLOCKS[self.method]) if self.method in BLOCKS else None


BLOCKS: Mapping[str, str] = {
    "geometry": "geometry",
    "superglobal": "superglobal",
    "aqe": "aqe",
    "k-reciprocal": "reciprocal",
    "ames": "ames",
}
MIXING = ("mix", "temperature", "junk_aware", "diagnostics")
EVIDENCE = ("checkpoint", "query_length", "gallery_length", "dtype", "junk_aware")
LOCAL: Mapping[str, tuple[str, ...]] = {
    "geometry": ("local", "features"),
    "ames": ("query_length", "gallery_length", "store", "dinov2", "files", "junk_aware"),
}


def parts(rerank: RerankParameters, where: str = "rerank") -> dict[str, Any]:
    """What each step depends on, as plain JSON: keys of other methods and of other steps stay out.

    `rerank`: the step of that name (no mixing, which is done from stored logits); `local`: which local
    features there must be; `mixing`: how logits and similarities are joined (None but for AMES);
    `reranker_training`: how a network is trained (None where none is). ParameterError, naming the key below
    `where`, where a network would have to be trained on local features that training images do not have.
    """
    own_features = rerank.ames.dinov2 is None and rerank.ames.files is None
    if rerank.method == "ames" and rerank.ames.checkpoint is None and not own_features:
        raise ParameterError(
            f"{where}.ames.checkpoint is missing: training in the graph needs the encoder's own local features"
        )
    whole = rerank.model_dump(mode="json")
    method = rerank.method
    if method == "none":
        nothing = {"method": "none"}
        return {"rerank": nothing, "local": nothing, "mixing": None, "reranker_training": None}
    common: dict[str, Any] = {"method": method, "shortlist": rerank.k}
    if rerank.after is not None:
        name = BLOCKS[rerank.after.method]
        common["after"] = {key: whole["after"][key] for key in ("method", "shortlist", name)}
    name = BLOCKS[method]
    own = whole[name]
    # Where descriptors come from is the step local's affair, how a network came about its training's.
    evidence = {key: own[key] for key in EVIDENCE} if method == "ames" else own
    local: dict[str, Any] = {"method": "none"}
    if method in BY_PAIRS:
        local = {**common, name: {key: own[key] for key in LOCAL[method]}}
    mixing = {"shortlist": rerank.k, **{key: own[key] for key in MIXING}} if method == "ames" else None
    training = None
    if method == "ames" and rerank.ames.checkpoint is None:
        lengths = {key: own[key] for key in ("query_length", "gallery_length")}
        training = {"method": "ames", **lengths, **own["training"]}
    return {
        "rerank": {**common, name: evidence},
        "local": local,
        "mixing": mixing,
        "reranker_training": training,
    }
