"""Which buildings stand in the town and which photographs are taken of each: no pixel is painted here."""

from dataclasses import dataclass

from cairn.benchmarks.toytown import names
from cairn.benchmarks.toytown.names import Category, Landmark
from cairn.benchmarks.toytown.randomness import generator_for
from cairn.benchmarks.toytown.settings import ToytownSettings
from cairn.benchmarks.toytown.specification import Specification, look_alike, specify

LOOK_ALIKE_SHARES = (0.85, 0.7, 0.55)  # of a landmark's parts
LOOK_ALIKE_VIEWS = ("plain", "tough", "plain")
STRANGER_VIEWS = ("plain", "tough", "plain", "tough")


@dataclass(frozen=True)
class Shot:
    """A photograph to take: its image id, its difficulty, its number among the building's photographs."""

    image_id: str
    difficulty: str
    number: int


@dataclass(frozen=True)
class Building:
    building_id: str
    specification: Specification
    landmark: str | None
    shots: tuple[Shot, ...]


@dataclass(frozen=True)
class TrainingClass:
    landmark_id: int  # GLDv2's word for the number of a class
    category: Category
    image_ids: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """The whole town on paper."""

    landmarks: tuple[Landmark, ...]
    buildings: tuple[Building, ...]
    queries: tuple[tuple[str, str], ...]  # image id, landmark id
    duplicates: tuple[tuple[str, str], ...]  # image id, image id of which it is a byte-identical copy
    training: tuple[TrainingClass, ...]


class _Names:
    """Hands out neutral image ids in random order: a name must not tell what its picture shows."""

    def __init__(self, folder: str, count: int, *key: object) -> None:
        digits = max(4, len(str(count)))
        order = generator_for("image names", folder, *key).permutation(count)
        self._left = [f"{folder}/photo-{number:0{digits}d}.jpg" for number in order[::-1]]

    def take(self, count: int) -> list[str]:
        return [self._left.pop() for _ in range(count)]


def plan_town(settings: ToytownSettings) -> Plan:
    """Everything that will be drawn, from the settings alone."""
    landmarks = names.name_landmarks(settings.seed, settings.landmarks)
    gallery = _Names("gallery", settings.landmarks * settings.views + settings.distractors, settings.seed)
    shown, queries, positive_copies = _plan_landmarks(settings, landmarks, gallery)
    others, distractor_copies = _plan_distractors(settings, landmarks, gallery)
    students, training = _plan_training(settings, landmarks)
    return Plan(
        landmarks=tuple(landmarks),
        buildings=(*shown, *others, *students),
        queries=tuple(queries),
        duplicates=(*positive_copies, *distractor_copies),
        training=tuple(training),
    )


def landmark_specification(seed: int, landmarks: list[Landmark], number: int) -> Specification:
    """Landmarks come in pairs that share parts, so that they are look-alikes of one another too."""
    even = number - number % 2
    base = specify(seed, "landmark", even, sign=landmarks[even].sign)
    if number == even:
        return base
    return look_alike(base, 0.5, 0.3, seed, "landmark", number, sign=landmarks[number].sign)


def difficulties_of_views(views: int) -> list[str]:
    """Four in eleven views are plain, two extreme, the others tough."""
    plain = max(1, round(views * 4 / 11))
    extreme = round(views * 2 / 11)
    return ["plain"] * plain + ["tough"] * (views - plain - extreme) + ["extreme"] * extreme


def _plan_landmarks(
    settings: ToytownSettings, landmarks: list[Landmark], gallery: _Names
) -> tuple[list[Building], list[tuple[str, str]], list[tuple[str, str]]]:
    seed, difficulties = settings.seed, difficulties_of_views(settings.views)
    random = generator_for(seed, "duplicates of positives")
    copied = set(random.choice(settings.landmarks, settings.positive_duplicates, replace=False).tolist())
    buildings, queries, copies = [], [], []
    digits = max(2, len(str(settings.landmarks + settings.second_queries - 1)))
    for number, landmark in enumerate(landmarks):
        images = gallery.take(settings.views)
        shots = [
            Shot(image, kind, view)
            for view, (image, kind) in enumerate(zip(images, difficulties, strict=True))
        ]
        if number in copied:
            shots.pop()  # the last view is not taken: it is a copy of an easier one
            copies.append((images[-1], images[int(random.integers(max(1, (settings.views - 1) // 2)))]))
        for extra in range(2 if number < settings.second_queries else 1):
            image = f"query/query-{len(queries):0{digits}d}.jpg"
            shots.append(Shot(image, "tough" if extra else "plain", settings.views + extra))
            queries.append((image, landmark.landmark_id))
        specification = landmark_specification(seed, landmarks, number)
        buildings.append(Building(landmark.landmark_id, specification, landmark.landmark_id, tuple(shots)))
    return buildings, queries, copies


def _plan_distractors(
    settings: ToytownSettings, landmarks: list[Landmark], gallery: _Names
) -> tuple[list[Building], list[tuple[str, str]]]:
    seed = settings.seed
    images = gallery.take(settings.distractors)
    originals = images[: settings.distractors - settings.distractor_duplicates]
    copies = images[len(originals) :]
    chosen = generator_for(seed, "duplicates of distractors").choice(
        len(originals), len(copies), replace=False
    )
    buildings, taken = [], 0

    def add(building_id: str, specification: Specification, difficulties: tuple[str, ...]) -> None:
        nonlocal taken
        shots = [
            Shot(image, kind, view)
            for view, (image, kind) in enumerate(zip(originals[taken:], difficulties, strict=False))
        ]
        buildings.append(Building(building_id, specification, None, tuple(shots)))
        taken += len(shots)

    alike = round(len(originals) * settings.look_alike_share)
    turn = 0
    while taken < alike:
        number, copy = turn % settings.landmarks, turn // settings.landmarks
        model = landmark_specification(seed, landmarks, number)
        share = LOOK_ALIKE_SHARES[copy % len(LOOK_ALIKE_SHARES)]
        specification = look_alike(model, share, 0.5, seed, "distractor", number, copy)
        views = LOOK_ALIKE_VIEWS[: alike - taken]
        add(f"look-alike-{number:02d}-{copy}", specification, views)
        turn += 1
    turn = 0
    while taken < len(originals):
        add(f"stranger-{turn:03d}", specify(seed, "stranger", turn), STRANGER_VIEWS)
        turn += 1
    return buildings, [(copy, originals[number]) for copy, number in zip(copies, chosen, strict=True)]


def _plan_training(
    settings: ToytownSettings, landmarks: list[Landmark]
) -> tuple[list[Building], list[TrainingClass]]:
    seed, count, views = settings.seed, settings.training_classes, settings.training_views
    secret = names.name_contaminated(seed, landmarks, settings.contaminated_classes)
    decoys = names.name_decoys(seed, landmarks, settings.decoy_classes)
    others = names.name_others(seed, landmarks, count - len(secret) - len(decoys))
    random = generator_for(seed, "training set")
    categories = [*secret, *decoys, *others]
    shuffled = [categories[number] for number in random.permutation(count)]
    # GLDv2's clean set keeps a part of the class numbers: they have gaps here too.
    numbers = sorted(random.choice(3 * count, count, replace=False).tolist())
    files = _Names("train", count * views, seed)
    index = {landmark.landmark_id: number for number, landmark in enumerate(landmarks)}
    mixed = {category.address for category in secret[2::3]}
    buildings, classes = [], []
    for number, category in zip(numbers, shuffled, strict=True):
        images = files.take(views)
        shots = [
            Shot(image, "plain" if view % 2 == 0 else "tough", view) for view, image in enumerate(images)
        ]
        classes.append(TrainingClass(number, category, tuple(images)))
        own = specify(seed, "training", number)
        building_id = f"training-{number:03d}"
        if category.landmark is None:
            buildings.append(Building(building_id, own, None, tuple(shots)))
            continue
        # In every third contaminated class some of the pictures show something else, as in life.
        shown = max(1, (2 * views) // 3) if category.address in mixed else views
        landmark = landmark_specification(seed, landmarks, index[category.landmark])
        buildings.append(Building(f"{building_id}-shows", landmark, category.landmark, tuple(shots[:shown])))
        if shots[shown:]:
            buildings.append(Building(building_id, own, None, tuple(shots[shown:])))
    return buildings, classes
