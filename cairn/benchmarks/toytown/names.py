"""What the town's people call its buildings: landmarks with aliases and languages, and training categories.

Categories look like GLDv2's (Weyand et al., CVPR 2020): addresses of Wikimedia Commons categories. The names
are invented. Some categories name a landmark plainly, some by an alias, in another language or not at all,
and some only sound like one: the contamination audit has to tell them apart.
"""

import unicodedata
from dataclasses import dataclass
from urllib.parse import quote

import numpy as np

from cairn.benchmarks.toytown.randomness import generator_for

PLACE = "Toytown"
PLACE_ALIASES = ("Toytown-on-Sea", "City of Toytown")
PLACE_LANGUAGES = {"de": "Spielzeugstadt", "es": "Villajuguete", "fr": "Villejouet"}
OTHER_PLACES = (
    "Northport", "Millbrook", "Kestrelford", "Saint-Aubrey", "Låvik", "Brücken", "Monte Corvo", "Penmarrow",
    "Eastwick Regis", "Château-Gris", "Vörösvár", "Great Hallow", "Sankt Emmer", "Oldcastle", "Rio Manso",
)  # fmt: skip
NEAR_MISS_PLACE = "New Toytown"  # another town, whose name contains this one's

# Kind of building in English, German, Spanish and French; {} is whom it is named after.
KINDS = (
    ("Saint {}'s Church", "St.-{}-Kirche", "Iglesia de San {}", "Église Saint-{}"),
    ("{} Castle", "Schloss {}", "Castillo de {}", "Château de {}"),
    ("{} Museum", "{}-Museum", "Museo {}", "Musée {}"),
    ("{} Theatre", "{}-Theater", "Teatro {}", "Théâtre {}"),
    ("{} Library", "{}-Bibliothek", "Biblioteca {}", "Bibliothèque {}"),
    ("{} Tower", "{}-Turm", "Torre {}", "Tour {}"),
    ("{} Palace", "Palais {}", "Palacio de {}", "Palais {}"),
    ("{} Abbey", "Abtei {}", "Abadía de {}", "Abbaye de {}"),
    ("{} Market Hall", "{}-Markthalle", "Mercado {}", "Halle {}"),
    ("{} College", "{}-Kolleg", "Colegio {}", "Collège {}"),
)
# Names that many towns have: only the place tells which building is meant.
AMBIGUOUS = (
    ("Christ Church", "Christuskirche", "Iglesia de Cristo", "Église du Christ"),
    ("Town Hall", "Rathaus", "Ayuntamiento", "Hôtel de ville"),
    ("Opera House", "Opernhaus", "Teatro de la Ópera", "Opéra"),
    ("Old Mint", "Alte Münze", "Casa de la Moneda", "Ancienne Monnaie"),
    ("Corn Exchange", "Kornbörse", "Lonja del Grano", "Halle aux blés"),
    ("Central Station", "Hauptbahnhof", "Estación Central", "Gare centrale"),
    ("Customs House", "Zollhaus", "Casa de la Aduana", "Maison des douanes"),
    ("Guildhall", "Gildehaus", "Casa de los Gremios", "Maison des guildes"),
)
PATRONS = (
    "Orla", "Éluned", "Brannoc", "Ysolde", "Castellan", "Mirabel", "Ångrave", "Quillon", "Peverell",
    "Hölme", "Corvin", "Dragomír", "Wystan", "Fenella", "Józefa", "Lambrecht", "Ondřej", "Theodric", "Åsa",
    "Benedikta", "Coelwin", "Isembard", "Ragnhild", "Tancred", "Ursuline", "Vauquelin", "Winfrid", "Xanthe",
    "Zuzanne", "Yrjö", "Zdenko", "Bertrade", "Cunégonde", "Dunstan", "Ermengarde", "Fulbert", "Gudrun",
    "Aldhelm", "Hývel", "Ingomar", "Jaromír", "Kenelm", "Ludmila", "Melisende", "Nikanor", "Osmund",
    "Perpetua", "Radegund", "Sigrún", "Tiernan", "Ulrika", "Venceslas", "Wulfric", "Yvain", "Zoltán",
    "Amaury", "Bronisław", "Cyneburg", "Desmarais", "Eadgyth", "Florián", "Gisèle", "Hildegund", "Iñigo",
)  # fmt: skip
NICKNAMES = (
    "Pepper Pot", "Old Lantern", "Crooked Crown", "Sugar Loaf", "Blind Owl", "Inkwell", "Wedding Cake",
    "Long Ear", "Copper Hat", "Whale", "Button Box", "Stone Ship", "Three Sisters", "Broken Comb",
    "Cuckoo's Nest", "Lighthouse",
)  # fmt: skip
SCENES = (
    "Harbour Street", "Tram depot", "Evening light", "Old bridge", "Fountains", "Cattle market",
    "Town walls", "Lime avenue", "River steamers", "Shop fronts", "Winter fair", "Cemetery", "School",
    "Mill", "Waterworks",
)  # fmt: skip

LANGUAGES = ("de", "es", "fr")
# How the contaminated classes are named, in turn; the last cannot be found by any name.
NAMINGS = (
    "with place", "plain", "alias", "ambiguous with place", "language", "part", "unaccented",
    "place in another language", "plain", "view of the place", "with place", "unnamed",
)  # fmt: skip


@dataclass(frozen=True)
class Landmark:
    """What anyone may know about a landmark."""

    landmark_id: str
    name: str
    aliases: tuple[str, ...]
    languages: dict[str, str]
    ambiguous: bool  # the name alone does not tell in which place the building stands

    @property
    def sign(self) -> str:
        """What stands over its door: the first telling word, in plain capitals."""
        words = [word for word in plain(self.name).replace("'s", "").split() if word != "Saint"]
        return words[0].upper()[:9]


@dataclass(frozen=True)
class Category:
    """A training class: its address, and the hidden truth about it."""

    address: str
    landmark: str | None  # the landmark that its pictures show
    naming: str  # how the name relates to a landmark: "plain", "alias", …; "other" where it does not
    sounds_like: str | None  # the landmark that its name suggests


def plain(text: str) -> str:
    """`text` without accents."""
    decomposed = unicodedata.normalize("NFKD", text.replace("ł", "l"))
    return "".join(letter for letter in decomposed if not unicodedata.combining(letter))


def category_address(name: str) -> str:
    """The address of the Commons category `name`, percent-encoded as GLDv2's category file has it."""
    return "http://commons.wikimedia.org/wiki/Category:" + quote(name.replace(" ", "_"), safe="_(),-:.")


def name_landmarks(seed: int, count: int) -> list[Landmark]:
    """Names of `count` landmarks: every fifth has a name that other towns have too."""
    random = generator_for(seed, "names of landmarks")
    patrons = _patrons(random)
    nicknames = list(random.permutation(NICKNAMES))
    landmarks = []
    for number in range(count):
        shared = number % 5 == 1 and number // 5 < len(AMBIGUOUS)
        if shared:
            forms = AMBIGUOUS[number // 5]
        else:
            patron = next(patrons)
            forms = tuple(form.format(patron) for form in KINDS[random.integers(len(KINDS))])
        aliases = []
        if number % 5 in (0, 2, 3) and nicknames:
            aliases.append(f"The {nicknames.pop()}")
        if forms[0].startswith("Saint "):
            aliases.append(forms[0].replace("Saint ", "St. ", 1))
        if shared:
            aliases.append(f"{PLACE} {forms[0]}")
        landmarks.append(
            Landmark(
                landmark_id=f"landmark-{number:02d}",
                name=forms[0],
                aliases=tuple(aliases),
                languages=dict(zip(LANGUAGES, forms[1:], strict=True)),
                ambiguous=shared,
            )
        )
    return landmarks


def name_contaminated(seed: int, landmarks: list[Landmark], count: int) -> list[Category]:
    """Categories whose pictures secretly show `count` different landmarks, named in rotating ways."""
    random = generator_for(seed, "contaminated classes")
    left = [landmarks[number] for number in random.permutation(len(landmarks))]
    fits = {
        "alias": lambda one: one.aliases and one.aliases[0].startswith("The "),
        "ambiguous with place": lambda one: one.ambiguous,
        "unaccented": lambda one: one.name != plain(one.name),
        # A bare "Town Hall" would not name this building.
        "plain": lambda one: not one.ambiguous,
        "language": lambda one: not one.ambiguous,
        "part": lambda one: not one.ambiguous,
    }
    categories = []
    for number in range(count):
        naming = NAMINGS[number % len(NAMINGS)]
        chosen = next(filter(fits.get(naming), left), left[0])
        left.remove(chosen)
        name = _contaminated_name(naming, chosen, number)
        if number >= len(NAMINGS):
            name = f"{name} in {1900 + number}"  # a second round must not repeat a name
        sounds_like = None if naming in ("view of the place", "unnamed") else chosen.landmark_id
        categories.append(Category(category_address(name), chosen.landmark_id, naming, sounds_like))
    return categories


def _contaminated_name(naming: str, landmark: Landmark, number: int) -> str:
    match naming:
        case "with place":
            return f"{landmark.name} ({PLACE})"
        case "plain":
            return landmark.name
        case "alias":
            return landmark.aliases[0] if landmark.aliases else landmark.name
        case "ambiguous with place":
            return f"{landmark.name}, {PLACE}"
        case "language":
            return landmark.languages[LANGUAGES[(number + 1) % 3]]
        case "part":
            return f"Façade of {landmark.name}"
        case "unaccented":
            return plain(landmark.name).replace("'", "’")
        case "place in another language":
            return f"{landmark.languages['de']} ({PLACE_LANGUAGES['de']})"
        case "view of the place":
            return f"{SCENES[0]}, {PLACE}"
        case _:
            return f"{SCENES[2]} on old walls"


def name_decoys(seed: int, landmarks: list[Landmark], count: int) -> list[Category]:
    """Categories that sound like a landmark and show none."""
    random = generator_for(seed, "decoy classes")
    shared = [landmark for landmark in landmarks if landmark.ambiguous] or landmarks
    own = [landmark for landmark in landmarks if not landmark.ambiguous] or landmarks
    shared = [shared[number] for number in random.permutation(len(shared))]
    own = [own[number] for number in random.permutation(len(own))]
    categories = []
    for number in range(count):
        turn = number // 8
        generic, proper = shared[number % len(shared)], own[number % len(own)]
        place = OTHER_PLACES[random.integers(len(OTHER_PLACES))] + (f" {turn + 1}" if turn else "")
        naming, landmark, name = (
            ("same name elsewhere", generic, f"{generic.name} ({place})"),
            ("place that contains the place", generic, f"{generic.name} ({NEAR_MISS_PLACE})"),
            ("hyphenated branch", proper, f"{proper.name}-{place}"),
            ("name inside a longer word", generic, f"{generic.name.replace(' ', '').capitalize()} gardens"),
            ("same patron, another building", proper, f"{_patron(proper)} Hospital ({place})"),
            ("ambiguous name, no place", generic, generic.name),
            ("interior", proper, f"Interior of {proper.name} ({PLACE})"),
            ("another building in the place", None, f"{SCENES[1]} ({PLACE})"),
        )[number % 8]
        if turn:
            name = f"{name} in {1900 + turn}"
        sounds_like = landmark.landmark_id if landmark else None
        categories.append(Category(category_address(name), None, naming, sounds_like))
    return categories


def name_others(seed: int, landmarks: list[Landmark], count: int) -> list[Category]:
    """Categories of other places that have nothing to do with the landmarks."""
    random = generator_for(seed, "other classes")
    taken = {_patron(landmark) for landmark in landmarks}
    patrons = [patron for patron in PATRONS if patron not in taken] or [f"{name}sen" for name in PATRONS]
    names: dict[str, None] = {}  # keeps the order; a set would not
    while len(names) < count:
        place = str(random.choice(OTHER_PLACES))
        if random.random() < 0.7:
            form = KINDS[random.integers(len(KINDS))][random.integers(4)]
            name = form.format(random.choice(patrons))
            if random.random() < 0.4:
                name = f"{name} ({place})"
        else:
            name = f"{random.choice(SCENES)} in {place}"
            if random.random() < 0.3:
                name = f"{name}, {int(random.integers(1890, 2020))}"
        if len(names) > 0.8 * len(KINDS) * 4 * len(patrons):
            name = f"{name} {len(names)}"  # a huge town uses the words up
        names[name] = None
    return [Category(category_address(name), None, "other", None) for name in names]


def _patron(landmark: Landmark) -> str:
    words = [word for word in landmark.name.replace("'s", "").split() if word != "Saint"]
    return words[0]


def _patrons(random: np.random.Generator):
    """Patrons in random order, then double names, without end."""
    order = [str(name) for name in random.permutation(PATRONS)]
    yield from order
    for distance in range(1, len(order)):
        for number, name in enumerate(order):
            yield f"{name}-{order[(number + distance) % len(order)]}"
