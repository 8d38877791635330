"""A stratified sample of flagged images for people to judge, and what their judgements say."""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cairn.contamination.classes import FlaggedClass
from cairn.contamination.images import ImageVerdict
from cairn.contamination.proportions import Agreement, Share, cohens_kappa, wilson
from cairn.contamination.training_classes import TrainingImages
from cairn.errors import InputError
from cairn.files import write_json

VERDICTS = {1: "shows the queried landmark", 2: "does not show it", 3: "cannot tell"}
YES, NO, UNSURE = VERDICTS


@dataclass(frozen=True)
class SampleItem:
    """One image to judge beside a query. `detector` is the detector's verdict, which judges do not see.

    `item_id` says nothing about image, class or rule.
    """

    item_id: str
    image_id: str
    query_id: str
    class_id: int
    rule: str
    stratum: str
    detector: bool


@dataclass(frozen=True)
class Sample:
    """A stratified sample: `strata` says how many images each stratum has in all, judged or not."""

    items: tuple[SampleItem, ...]
    strata: Mapping[str, int]
    seed: int

    @property
    def digest(self) -> str:
        """What a file of judgements names, so that it is never read against another sample."""
        content = [[asdict(one) for one in self.items], dict(self.strata)]
        text = json.dumps(content, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def draw_sample(
    flagged: Sequence[FlaggedClass],
    training: TrainingImages,
    verdicts: Mapping[str, ImageVerdict],
    size: int,
    seed: int,
) -> Sample:
    """Draw `size` of the flagged images that have a verdict and a query, by kind of rule and verdict.

    Strata are `unique`, `ctx` and `blanket`, each split into confirmed and not. They get images in
    proportion to their size, at least two each where they have them; all images are taken where there are
    fewer than `size`. The same arguments give the same sample. InputError where there is none to draw.
    """
    if size < 1:
        raise InputError(f"a sample of {size} images; expected at least 1")
    texts = dict(zip(training.class_ids, training.images, strict=True))
    pools: dict[str, list[tuple[str, FlaggedClass]]] = {}
    for one in sorted(flagged, key=lambda one: one.class_id):
        for image in sorted(texts.get(one.class_id, "").split()):
            verdict = verdicts.get(image)
            if verdict is not None and verdict.query_id is not None:
                kind = "confirmed" if verdict.confirmed else "not confirmed"
                pools.setdefault(f"{one.findings[0].kind}, {kind}", []).append((image, one))
    if not pools:
        raise InputError("no flagged image was compared with a query: there is nothing to judge")
    names = sorted(pools)
    counts = allocate([len(pools[name]) for name in names], size)
    generator = np.random.default_rng([seed, size])
    drawn: list[tuple[str, str, FlaggedClass]] = []
    for name, count in zip(names, counts, strict=True):
        chosen = generator.choice(len(pools[name]), count, replace=False)
        drawn += [(name, *pools[name][number]) for number in sorted(chosen.tolist())]
    items = []
    for place, number in enumerate(generator.permutation(len(drawn)).tolist()):
        stratum, image, one = drawn[number]
        verdict = verdicts[image]
        items.append(
            SampleItem(
                f"{place + 1:04d}", image, str(verdict.query_id), one.class_id, one.rule, stratum,
                verdict.confirmed,
            )
        )  # fmt: skip
    return Sample(tuple(items), {name: len(pools[name]) for name in names}, seed)


def allocate(sizes: Sequence[int], total: int, least: int = 2) -> list[int]:
    """How many of `total` each stratum gives: in proportion by largest remainders, `least` where it has them."""
    total = min(total, sum(sizes))
    floor = [min(least, size) for size in sizes]
    if sum(floor) > total:
        floor = [0] * len(sizes)
    result, rest = list(floor), total - sum(floor)
    left = [size - taken for size, taken in zip(sizes, floor, strict=True)]
    if rest:
        exact = [rest * size / sum(left) for size in left]
        extra = [math.floor(value) for value in exact]
        order = sorted(range(len(sizes)), key=lambda number: (extra[number] - exact[number], number))
        for number in order[: rest - sum(extra)]:
            extra[number] += 1
        result = [taken + more for taken, more in zip(result, extra, strict=True)]
    return result


def write_sample(path: Path, sample: Sample) -> None:
    """Write a sample for `read_sample`; the page for judges is made from it (see `judging_page.py`)."""
    items = [asdict(one) for one in sample.items]
    write_json(
        path, {"digest": sample.digest, "seed": sample.seed, "strata": dict(sample.strata), "items": items}
    )


def read_sample(path: Path) -> Sample:
    """The sample in a file. InputError where it is not one, or was changed since it was written."""
    from cairn.scoring.files import read_json

    value = read_json(path)
    try:
        items = tuple(SampleItem(**one) for one in value["items"])
        sample = Sample(items, dict(value["strata"]), int(value["seed"]))
        digest = value["digest"]
    except (KeyError, TypeError, ValueError):
        raise InputError(f"{path}: not a sample as `draw_sample` makes it") from None
    if digest != sample.digest:
        raise InputError(
            f"{path}: its items do not fit its digest {digest}; it was changed after it was drawn"
        )
    return sample


@dataclass(frozen=True)
class Judgements:
    """What one judge said of a sample's items, by item id: 1, 2 or 3 (see VERDICTS)."""

    judge: str
    verdicts: Mapping[str, int]


def read_judgements(path: Path, sample: Sample) -> Judgements:
    """The file that the judging page saves. InputError where it is of another sample, or not valid."""
    from cairn.scoring.files import read_json

    path = Path(path)
    value = read_json(path)
    if not isinstance(value, dict) or not isinstance(value.get("verdicts"), dict):
        raise InputError(f"{path}: not a file of judgements; expected an object with sample and verdicts")
    if value.get("sample") != sample.digest:
        raise InputError(
            f"{path}: it judges the sample {value.get('sample')!s:.20}, this one is {sample.digest}"
        )
    known = {one.item_id for one in sample.items}
    for item, verdict in value["verdicts"].items():
        if item not in known:
            raise InputError(f"{path}: there is no item {item!r:.40} in the sample")
        if isinstance(verdict, bool) or not isinstance(verdict, int) or verdict not in VERDICTS:
            raise InputError(f"{path}: item {item}: verdict {verdict!r:.40}; expected 1, 2 or 3")
    judge = value.get("judge")
    name = judge.strip() if isinstance(judge, str) else ""
    return Judgements(name or path.stem, dict(value["verdicts"]))


@dataclass(frozen=True)
class JudgeReport:
    """What one judge's verdicts say.

    `precision` counts images that show the landmark among those judged 1 or 2; `estimate` and `interval` are
    of all flagged images, strata weighted by their size. `against_detector` is kappa over the same images.
    """

    judge: str
    judged: Share
    unsure: int
    precision: Share
    by_stratum: Mapping[str, Share]
    estimate: float | None
    interval: tuple[float, float] | None
    strata_without_verdict: tuple[str, ...]
    against_detector: Agreement

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "judge": self.judge,
            "judged": self.judged.as_json(),
            "cannot_tell": self.unsure,
            "precision": self.precision.as_json(),
            "precision_by_stratum": {name: share.as_json() for name, share in self.by_stratum.items()},
            "precision_of_all_flagged_images": {
                "estimate": self.estimate,
                "interval95": list(self.interval) if self.interval else None,
                "strata_without_a_verdict": list(self.strata_without_verdict),
            },
            "kappa_with_detector": self.against_detector.as_json(),
        }


def report_judgements(sample: Sample, judgements: Judgements) -> JudgeReport:
    """Precision by stratum and of all flagged images, and agreement with the detector."""
    decided = [one for one in sample.items if judgements.verdicts.get(one.item_id) in (YES, NO)]
    says_yes = {one.item_id for one in decided if judgements.verdicts[one.item_id] == YES}
    by_stratum = {}
    for name in sorted(sample.strata):
        here = [one for one in decided if one.stratum == name]
        yes = sum(one.item_id in says_yes for one in here)
        by_stratum[name] = Share(yes, len(here), f"judged images that are {name}")
    estimate, interval = weighted(by_stratum, sample.strata)
    return JudgeReport(
        judge=judgements.judge,
        judged=Share(len(judgements.verdicts), len(sample.items), "sampled images"),
        unsure=sum(verdict == UNSURE for verdict in judgements.verdicts.values()),
        precision=Share(len(says_yes), len(decided), "sampled images judged to show the landmark or not"),
        by_stratum=by_stratum,
        estimate=estimate,
        interval=interval,
        strata_without_verdict=tuple(name for name, share in by_stratum.items() if not share.whole),
        against_detector=cohens_kappa(
            [one.item_id in says_yes for one in decided], [one.detector for one in decided]
        ),
    )


def agreement_of_judges(judgements: Sequence[Judgements]) -> dict[str, Agreement]:
    """Kappa of every two judges over the items both judged, "cannot tell" being a category like the others."""
    result = {}
    for number, first in enumerate(judgements):
        for second in judgements[number + 1 :]:
            both = sorted(first.verdicts.keys() & second.verdicts.keys())
            result[f"{first.judge} / {second.judge}"] = cohens_kappa(
                [first.verdicts[item] for item in both], [second.verdicts[item] for item in both]
            )
    return result


def weighted(
    shares: Mapping[str, Share], sizes: Mapping[str, int]
) -> tuple[float | None, tuple[float, float] | None]:
    """Estimate of a proportion over strata of known `sizes`, and its 95% interval.

    The estimate is sum(W p); its variance sum(W² p (1 − p) / n × (1 − n / N)) (Cochran, Sampling Techniques,
    1977, section 5.4), with p smoothed as (x + 2) / (n + 4) so that a stratum of one kind is not taken for
    certain; the interval is Wilson's with the number of observations that has this variance. Strata without
    a judged image are left out.
    """
    judged = [name for name, share in shares.items() if share.whole]
    total = sum(sizes[name] for name in judged)
    if not total:
        return None, None
    estimate = variance = smoothed = 0.0
    for name in judged:
        share, weight = shares[name], sizes[name] / total
        p = (share.part + 2) / (share.whole + 4)
        estimate += weight * share.part / share.whole
        smoothed += weight * p
        variance += weight**2 * p * (1 - p) / share.whole * max(0.0, 1 - share.whole / sizes[name])
    if variance == 0:
        return estimate, (estimate, estimate)  # every image was judged
    effective = smoothed * (1 - smoothed) / variance
    return estimate, wilson(estimate * effective, effective)


def unique_judges(judgements: Iterable[Judgements]) -> None:
    """InputError where two files are of one judge: their agreement would say nothing."""
    seen: set[str] = set()
    for one in judgements:
        if one.judge in seen:
            raise InputError(f"two files of judgements are by {one.judge!r}; give each judge one")
        seen.add(one.judge)
