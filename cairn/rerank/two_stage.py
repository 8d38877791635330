"""The two-stage protocol: which candidates the second stage sees, and how its scores are mixed in.

Source: Suma et al., AMES, ECCV 2024, and official code `src/utils/metrics.py`, function `rerank` (the junk
rule is DELG's, `detect_to_retrieve/image_reranking.py`):

- junk-aware: before the shortlist is cut, images that the setting ignores are moved behind the whole ranking
  (Medium: junk; Hard: junk and easy; Easy: junk and hard). The order among the others stays;
- the first k are sorted by mix * global score + (1 - mix) * sigmoid(temperature * logit), in float32; the
  rest keep their places;
- unaware: the same without moving anything, since a deployed system has no ground truth.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from cairn.errors import ArtifactError, ParameterError

UNAWARE = "unaware"
IGNORED: dict[str, tuple[str, ...]] = {
    "easy": ("junk", "hard"),
    "medium": ("junk",),
    "hard": ("junk", "easy"),
    "all": ("junk",),
    UNAWARE: (),
}
"""For each setting the grades that are moved behind the ranking; "all" is for benchmarks of one grade."""

_SLUG = re.compile(
    r"(?P<name>[a-z0-9-]+?)-k(?P<k>\d+)-l(?P<l>[\d.]+)-t(?P<t>[\d.]+)(?P<unaware>-unaware)?(?:-on-.+)?"
)


@dataclass(frozen=True)
class Cell:
    """Every knob of a two-stage number. `shortlist` k, `mix` lambda in 0-1, `temperature` gamma > 0."""

    name: str = "ames"
    shortlist: int = 1600
    mix: float = 0.55
    temperature: float = 0.3
    junk_aware: bool = True

    def __post_init__(self) -> None:
        if self.shortlist < 1 or not 0 <= self.mix <= 1 or not self.temperature > 0:
            raise ParameterError(
                f"re-ranking cell k = {self.shortlist}, lambda = {self.mix}, gamma = {self.temperature}: "
                "expected k >= 1, lambda in 0-1, gamma > 0"
            )

    @property
    def slug(self) -> str:
        """The stage's name in a result: `ames-k1600-l0.55-t0.3`, with `-unaware` where junk is not moved."""
        tail = "" if self.junk_aware else f"-{UNAWARE}"
        return f"{self.name}-k{self.shortlist}-l{_number(self.mix)}-t{_number(self.temperature)}{tail}"

    @classmethod
    def parse(cls, slug: str) -> "Cell":
        """The cell of a slug; ParameterError where it is none.

        Of a chain `a~b` the last link is read; what the first stage was (`-on-…`) is left out.
        """
        match = _SLUG.fullmatch(slug.rpartition("~")[2])
        if not match:
            raise ParameterError(f"{slug!r} names no re-ranking cell; expected like ames-k1600-l0.55-t0.3")
        return cls(
            match["name"], int(match["k"]), float(match["l"]), float(match["t"]), match["unaware"] is None
        )

    def diagnostics(self, mixes: Iterable[float], temperatures: Iterable[float]) -> tuple["Cell", ...]:
        """The other cells of a grid, evaluated from the same logits and reported as diagnostics."""
        gammas = tuple(temperatures)
        cells = (replace(self, mix=mix, temperature=gamma) for mix in mixes for gamma in gammas)
        return tuple(cell for cell in dict.fromkeys(cells) if cell != self)


def chained(*slugs: str) -> str:
    """Name of stages that follow one another, as in `sg-m1600~ames-k1600-l0.55-t0.3`."""
    return "~".join(slugs)


@dataclass(frozen=True)
class RankedQuery:
    """What a ranking file holds of one query, by ascending rank: its top rows and all judged images."""

    query_id: str
    image_ids: tuple[str, ...]
    image_row: NDArray[np.int64]  # [n]
    rank: NDArray[np.int64]  # [n] exact rank in the whole gallery, from 0
    score: NDArray[np.float32]  # [n]
    gallery_size: int
    missing: int = 0
    """Images at the end of the list that have no descriptor: no shortlist holds them. All, where the query has none."""

    @property
    def present(self) -> NDArray[np.bool_]:
        """[n] whether the image has a rank that a descriptor gave it."""
        return self.rank < self.gallery_size - self.missing

    def grades(self, relevance: Mapping[str, str]) -> list[str]:
        """Grade of each of the n images from the query's `relevance` {image_id: grade}, "" where unjudged."""
        return [relevance.get(image, "") for image in self.image_ids]

    def ignored(self, relevance: Mapping[str, str], setting: str) -> NDArray[np.bool_]:
        """[n] flags of the images that `setting` moves behind the ranking."""
        return np.isin(np.array(self.grades(relevance), dtype=object), IGNORED[setting])


def settings_of(relevance: Mapping[str, Mapping[str, str]]) -> tuple[str, ...]:
    """The junk-aware settings of a benchmark from its {query_id: {image_id: grade}}."""
    graded = any(grade in ("easy", "hard") for images in relevance.values() for grade in images.values())
    return ("easy", "medium", "hard") if graded else ("all",)


@dataclass(frozen=True)
class RerankedQuery:
    """The same images in their new order: `order` [n] positions in the RankedQuery, by ascending new rank."""

    order: NDArray[np.int64]
    rank: NDArray[np.int64]  # [n] of the ordered images
    score: NDArray[np.float32]  # [n]


def shortlist(query: RankedQuery, ignored: NDArray[np.bool_], k: int) -> NDArray[np.int64]:
    """Positions [<= k] in `query` of the first `k` images that are neither `ignored` [n] nor missing, by rank.

    Raises ArtifactError where the ranking was cut so short that unjudged images belong between them.
    """
    present = query.present
    kept = np.flatnonzero(~ignored & present)[:k]
    moved = np.cumsum(ignored)
    places = query.rank[kept] - moved[kept]
    total = query.gallery_size - query.missing - int((ignored & present).sum())
    if len(kept) < min(k, total) or not np.array_equal(places, np.arange(len(kept))):
        raise ArtifactError(
            f"query {query.query_id}: the ranking's top rows do not fill a shortlist of {k} images; "
            f"raise search.top to at least {k + int(ignored.sum())}"
        )
    return kept


def united_shortlist(
    query: RankedQuery, relevance: Mapping[str, str], settings: Sequence[str], k: int
) -> NDArray[np.int64]:
    """Positions, ascending, of all images in the shortlist of any of `settings`: each pair is scored once."""
    parts = [shortlist(query, query.ignored(relevance, setting), k) for setting in settings]
    return np.unique(np.concatenate(parts))


def mixed_score(
    global_score: NDArray[np.float32], logit: NDArray[np.float32], mix: float, temperature: float
) -> NDArray[np.float32]:
    """mix * global + (1 - mix) * sigmoid(temperature * logit), float32 throughout as in the official code."""
    with np.errstate(over="ignore"):
        local = np.float32(1) / (np.float32(1) + np.exp(np.float32(-temperature) * logit.astype(np.float32)))
    mixed = np.float32(mix) * global_score.astype(np.float32) + np.float32(1 - mix) * local
    return mixed.astype(np.float32, copy=False)


def rerank_query(
    query: RankedQuery,
    ignored: NDArray[np.bool_],
    logits: Mapping[int, float] | tuple[NDArray[np.int64], NDArray[np.float32]],
    cell: Cell,
) -> RerankedQuery:
    """The query's list after the second stage.

    `ignored` [n]: images moved behind the ranking; `logits`: positions in `query` and their logits (any
    order). Equal mixed scores are ordered by manifest row. An image that was not re-ranked gets mix * global
    score, the limit of the mixed score for a logit of minus infinity: no more than any re-ranked image has.
    Raises ArtifactError where a shortlisted image has no logit.
    """
    chosen = shortlist(query, ignored, cell.shortlist)
    positions, values = logits if isinstance(logits, tuple) else _unzip(logits)
    logit = np.full(len(query.rank), np.nan, np.float32)
    logit[positions] = values
    absent = chosen[np.isnan(logit[chosen])]
    if len(absent):
        raise ArtifactError(
            f"query {query.query_id}: no logit for {query.image_ids[absent[0]]}, one of the shortlist of "
            f"{cell.shortlist}; run the re-ranking again with this shortlist size"
        )
    mixed = mixed_score(query.score[chosen], logit[chosen], cell.mix, cell.temperature)
    kept, behind = np.flatnonzero(~ignored), np.flatnonzero(ignored)
    order = np.concatenate(
        [chosen[np.lexsort((query.image_row[chosen], -mixed))], kept[len(chosen) :], behind]
    )
    moved = np.cumsum(ignored)
    rank = query.rank - moved  # of the kept ones, once the ignored have left
    last = query.gallery_size - len(behind)
    rank = np.concatenate([rank[kept], last + np.arange(len(behind))]).astype(np.int64)
    score = (np.float32(cell.mix) * query.score).astype(np.float32)
    score[chosen] = mixed
    return RerankedQuery(order.astype(np.int64), rank, score[order])


def _unzip(logits: Mapping[int, float]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    return np.fromiter(logits, np.int64, len(logits)), np.fromiter(logits.values(), np.float32, len(logits))


def _number(value: float) -> str:
    return f"{value:.6g}"
