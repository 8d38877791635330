"""How large a town to draw: the settings of the generator, checked."""

from dataclasses import dataclass, fields

from cairn.errors import ParameterError


@dataclass(frozen=True)
class ToytownSettings:
    """Everything that decides the bytes of a town besides this code; the defaults are the benchmark.

    Raises ParameterError where a number is negative or the parts do not fit together.
    """

    seed: int = 0
    landmarks: int = 40  # each has one query
    second_queries: int = 10  # the first so many landmarks have another, harder one
    views: int = 11  # gallery images of each landmark
    distractors: int = 1000  # gallery images that show no landmark, duplicates included
    look_alike_share: float = 0.72  # of the distractors: buildings that share parts with a landmark
    distractor_duplicates: int = 6  # distractors that are byte-identical to another one
    positive_duplicates: int = 2  # images of landmarks that are byte-identical to another one
    training_classes: int = 150
    training_views: int = 6  # images of each training class
    contaminated_classes: int = 12  # training classes that secretly show a query landmark
    decoy_classes: int = 8  # training classes that only sound as if they did

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not isinstance(value, (int, float)) or isinstance(value, bool) or value < 0:
                raise ParameterError(f"toytown: {field.name} must be a number of at least 0, not {value!r}")
            if field.type in (int, "int") and not isinstance(value, int):
                raise ParameterError(f"toytown: {field.name} must be a whole number, not {value!r}")
        self._require(self.landmarks >= 1, "landmarks must be at least 1: a benchmark needs queries")
        self._require(self.views >= 1, "views must be at least 1: a query needs positives")
        self._require(self.second_queries <= self.landmarks, "second_queries exceeds landmarks")
        self._require(self.look_alike_share <= 1, "look_alike_share must be at most 1")
        self._require(
            2 * self.distractor_duplicates <= self.distractors,
            "distractor_duplicates exceeds half of the distractors: each needs an original of its own",
        )
        self._require(self.positive_duplicates <= self.landmarks, "positive_duplicates exceeds landmarks")
        self._require(
            self.positive_duplicates == 0 or self.views >= 2, "positive_duplicates needs at least 2 views"
        )
        self._require(self.contaminated_classes <= self.landmarks, "contaminated_classes exceeds landmarks")
        self._require(
            self.contaminated_classes + self.decoy_classes <= self.training_classes,
            "contaminated_classes + decoy_classes exceeds training_classes",
        )
        self._require(
            self.training_classes == 0 or self.training_views >= 1, "training_views must be at least 1"
        )

    @staticmethod
    def _require(holds: bool, otherwise: str) -> None:
        if not holds:
            raise ParameterError(f"toytown: {otherwise}")
