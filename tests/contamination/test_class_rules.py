"""Class rules on the names that are hard to tell apart, and on what spelling and encoding do to them."""

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn.contamination.landmarks import LandmarkList, load_landmarks, shipped_lists
from cairn.contamination.rules import Examination, Matcher
from cairn.contamination.words import category_name, fold, split
from cairn.errors import InputError

MATCHER = Matcher([load_landmarks("roxford5k"), load_landmarks("rparis6k")])


def examine(name: str) -> Examination:
    address = "http://commons.wikimedia.org/wiki/Category:" + quote(name.replace(" ", "_"), safe="_(),-:.")
    return MATCHER.examine(address)


@pytest.mark.parametrize(
    ("name", "rule", "strict"),
    [
        ("Notre-Dame de Paris", "unique:notredame", True),
        ("Cathédrale Notre-Dame de Paris", "unique:notredame", True),
        ("Notre-Dame-de-Paris", "unique:notredame", True),
        ("Notre Dame (Paris)", "ctx:notredame", True),
        ("Notre-Dame, Île de la Cité", "ctx:notredame", True),
        ("Panthéon (Paris)", "ctx:pantheon", True),
        ("Pantheon, Paris", "ctx:pantheon", True),
        ("Magdalen College, Oxford", "unique:magdalen", True),
        ("Magdalene College, Oxford", "ctx:magdalen", True),
        ("Christ Church, Oxford", "ctx:christ-church", True),
        ("Christ Church Cathedral (Oxford)", "ctx:christ-church", True),
        ("Tom Tower", "unique:christ-church", True),
        ("Bridge of Sighs (Oxford)", "ctx:hertford", True),
        ("Louvre", "unique:louvre", True),
        ("Musée du Louvre (Paris)", "unique:louvre", True),
        ("Лувр", "unique:louvre", True),
        ("Eiffelturm", "unique:eiffel", True),
        ("Arc de triomphe de l’Étoile", "unique:triomphe", True),
        ("Arc de triomphe de l'Etoile", "unique:triomphe", True),
        ("Basilique du Sacré-Cœur, Paris", "ctx:sacrecoeur", True),
        ("Basilique du Sacre-Coeur (Montmartre)", "ctx:sacrecoeur", True),
        ("Eiffel Tower in 2010", "unique:eiffel", True),
        ("巴黎卢浮宫", "unique:louvre", True),
        ("卢浮宫博物馆", "unique:louvre", True),
        ("法国巴黎埃菲尔铁塔", "unique:eiffel", True),
        ("パリの凱旋門", "ctx:triomphe", True),
        ("ノートルダム大聖堂 (パリ)", "ctx:notredame", True),
        ("オックスフォードのラドクリフ・カメラ", "unique:radcliffe-camera", True),
        ("루브르 박물관", "unique:louvre", True),
        ("برج إيفل", "unique:eiffel", True),
        ("מגדל אייפל (פריז)", "unique:eiffel", True),
        ("Πύργος του Άιφελ", "unique:eiffel", True),
        ("Łuk Triumfalny w Paryżu", "ctx:triomphe", True),
        ("Ansichten des Eiffelturms", "unique:eiffel", True),
        ("Eiffel\u00adturm", "unique:eiffel", True),
        ("Eiffel\u200b Tower", "unique:eiffel", True),
        ("ＥＩＦＦＥＬ ＴＯＷＥＲ", "unique:eiffel", True),
        ("Tour Eiffel de nuit", "unique:eiffel", True),
        ("Torre Eiffel de Tijuana", "unique:eiffel", False),
        ("Tour Eiffel de Brocéliande", "unique:eiffel", False),
        ("Nuestra Señora de París (novela)", "unique:notredame", False),
        ("Magdalen Road, Oxford", "ctx:magdalen", False),
        ("牛津大学博物馆", "blanket:oxford", False),
        ("Interior of the Louvre", "unique:louvre", False),
        ("Moulin Rouge (film)", "unique:moulinrouge", False),
        ("Keble College (Somewhere)", "unique:keble", False),
        ("Brasenose College, Oxford", "blanket:oxford", False),
        ("Old Ashmolean, Oxford", "blanket:oxford", False),
        ("North Oxford", "blanket:oxford", False),
    ],
)
def test_flagged(name: str, rule: str, strict: bool) -> None:
    findings = examine(name).findings
    assert findings[0].rule == rule
    assert any(one.strict for one in findings) == strict


@pytest.mark.parametrize(
    ("name", "rule", "reason"),
    [
        ("Notre-Dame Basilica (Montreal)", "ctx:notredame", "names Montreal, not Paris"),
        ("Notre-Dame", "ctx:notredame", "ambiguous"),
        ("Notre-Dame de Lorette, Paris", "ctx:notredame", "another church in Paris"),
        ("Notre-Dame-des-Champs (Paris)", "ctx:notredame", "another church in Paris"),
        ("Notre-Dame-de-Fourvière", "ctx:notredame", "a hyphen makes it a part of “Notre-Dame-de-Fourvière”"),
        ("Pantheon (Rome)", "ctx:pantheon", "names Rome, not Paris"),
        ("Panthéon-Sorbonne, Paris", "ctx:pantheon", "a university"),
        ("Magdalene College, Cambridge", "ctx:magdalen", "names Cambridge, not Oxford"),
        ("Magdalen College School", "unique:magdalen", "a school"),
        ("Christchurch", "ctx:christ-church", "one word"),
        ("Christchurch Cathedral", "ctx:christ-church", "one word"),
        ("Christ Church Cathedral (Christchurch)", "ctx:christ-church", "names Christchurch, not Oxford"),
        ("Christ Church (Dublin)", "ctx:christ-church", "names Dublin"),
        ("Christ Church, Oxford, Mississippi", "ctx:christ-church", "names Mississippi, not Oxford"),
        ("Christ Church, Oxford Road, Manchester", "ctx:christ-church", "a road in Manchester"),
        ("Christ, Church of Oxfordia", "blanket:oxford", "another word"),
        ("Louvre-Lens", "unique:louvre", "a branch in Lens"),
        ("Musée du Louvre-Lens", "unique:louvre", "a branch in Lens"),
        ("Louvre-Beijing", "unique:louvre", "a hyphen"),
        ("Louvre Abu Dhabi", "unique:louvre", "a museum in Abu Dhabi"),
        ("Louvres", "unique:louvre", "another word"),
        ("Eiffel Tower (Las Vegas)", "unique:eiffel", "names Las Vegas, not Paris"),
        ("Replica of the Eiffel Tower, Paris", "unique:eiffel", "a copy"),
        ("Bridge of Sighs", "ctx:hertford", "ambiguous"),
        ("Ponte dei Sospiri (Venezia)", "ctx:hertford", "names Venezia, not Oxford"),
        ("Louvre – Lens", "unique:louvre", "names Lens, not Paris"),
        ("Notre-Dame de Bercy (Paris)", "ctx:notredame", "another church in Paris"),
        ("Notre Dame Cathedral, Ho Chi Minh City", "ctx:notredame", "names Ho Chi Minh, not Paris"),
        ("Notre-Dame of Paris, Kentucky", "ctx:notredame", "names Kentucky, not Paris"),
        ("Nachbau des Eiffelturms", "unique:eiffel", "a copy"),
        ("ノートルダム大聖堂", "ctx:notredame", "ambiguous"),
        ("凱旋門", "ctx:triomphe", "ambiguous"),
        ("牛津郡", "blanket:oxford", "the county around it"),
        ("Arc de triomphe du Carrousel, Paris", "ctx:triomphe", "the smaller arch"),
        ("Oxfordshire", "blanket:oxford", "another word"),
        ("Oxford Street", "blanket:oxford", "a street in London"),
        ("New Oxford", "blanket:oxford", "“New Oxford” is another place"),
        ("Oxford, Ohio", "blanket:oxford", "the Oxford of Ohio"),
    ],
)
def test_rejected_with_reason(name: str, rule: str, reason: str) -> None:
    seen = examine(name)
    assert not seen.findings
    assert any(one.rule == rule and reason in one.reason for one in seen.rejections), seen.rejections


@pytest.mark.parametrize("name", ["Happy Valley Racecourse", "Schloss Neuschwanstein", "", "%%%", "Rathaus"])
def test_unrelated_categories_are_not_considered(name: str) -> None:
    assert examine(name) == Examination()


def test_blanket_rule_that_is_off_counts_and_does_not_flag() -> None:
    seen = examine("Streets in Paris")
    assert seen.findings == () and seen.unused_places == ("paris",)


@pytest.mark.parametrize(
    "address",
    [
        "http://commons.wikimedia.org/wiki/Category:Mus%C3%A9e_d%27Orsay",
        "https://commons.wikimedia.org/wiki/Category:Mus%25C3%25A9e_d%2527Orsay",  # encoded twice
        "http://commons.wikimedia.org/wiki/Category:Mus%E9e_d%27Orsay",  # Latin-1
        "http://commons.wikimedia.org/wiki/Catégorie:Musée_d’Orsay",
        "Category:Muse\u0301e d'Orsay",  # a letter and a combining accent
        "MUSEE D`ORSAY",
        "Musée  d'Orsay,_Paris",
    ],
)
def test_spelling_and_encoding_do_not_matter(address: str) -> None:
    assert MATCHER.examine(address).findings[0].rule == "unique:museedorsay"


def test_matched_text_is_as_the_category_writes_it() -> None:
    finding = examine("Façade de l'Hôtel des INVALIDES (Paris)").findings[0]
    assert (finding.matched, finding.place) == ("Hôtel des INVALIDES", "Paris")


def test_words_fold_what_unicode_does_not_take_apart() -> None:
    assert [fold(word) for word in ("Łódź", "Sacré-Cœur", "Straße", "Ærø", "O’Neill")] == [
        "lodz", "sacrecoeur", "strasse", "aero", "oneill",
    ]  # fmt: skip
    assert split("St. John's Church, High St").tokens == ("saint", "johns", "church", "high", "st")


@given(st.text())
def test_any_text_is_examined_without_failing(text: str) -> None:
    for address in (text, f"http://commons.wikimedia.org/wiki/Category:{text}", f"Louvre {text}"):
        MATCHER.examine(address)
        words = split(category_name(address))
        assert len(words.tokens) == len(words.joins) == len(words.spans)


@given(
    st.sampled_from(["Louvre", "Radcliffe Camera", "Keble College"]), st.text(alphabet="abcXYZé", min_size=1)
)
def test_a_name_inside_a_longer_word_never_matches(name: str, letters: str) -> None:
    assert not [f for f in examine(f"{name}{letters}").findings if f.matched.endswith(letters)]


def test_shipped_lists_hold_eleven_landmarks_each() -> None:
    assert shipped_lists() == ["roxford5k", "rparis6k"]
    for name in shipped_lists():
        landmarks = load_landmarks(name)
        assert landmarks.benchmark == name and len(landmarks.landmarks) == 11
        # Every landmark is found by its own name beside its place.
        for one in landmarks.landmarks:
            found = examine(f"{one.name} ({one.place})").findings
            assert any(each.landmark == one.id and each.strict for each in found), one.id


def test_two_lists_of_one_benchmark_are_refused() -> None:
    with pytest.raises(InputError, match="two landmark lists are of the benchmark roxford5k"):
        Matcher([load_landmarks("roxford5k"), load_landmarks("roxford5k")])


def test_two_landmarks_in_one_category_are_both_reported() -> None:
    rules = [one.rule for one in examine("Louvre and Eiffel Tower").findings]
    assert rules == ["unique:eiffel", "unique:louvre"]


def test_an_ambiguous_name_that_holds_its_place_is_unique() -> None:
    town = LandmarkList.model_validate(
        {
            "benchmark": "town",
            "places": [{"name": "Toytown"}],
            "landmarks": [
                {
                    "id": "hall",
                    "name": "Town Hall",
                    "ambiguous": True,
                    "aliases": ["Toytown Town Hall"],
                    "place": "Toytown",
                }
            ],
        }
    )
    matcher = Matcher([town])
    assert matcher.examine("Toytown Town Hall").findings[0].rule == "unique:hall"
    assert matcher.examine("Town Hall (Toytown)").findings[0].rule == "ctx:hall"
    refused = matcher.examine("Town Hall (New Toytown)")
    assert not refused.findings and "New Toytown" in refused.rejections[0].reason
    assert not matcher.examine("Townhall gardens").findings
