"""Which questions an English-only model refuses."""

import pytest

from program.loop.rag import find_foreign_language


@pytest.mark.parametrize(
    ("question", "language"),
    [
        ("Wie bekomme ich mein Geld zurück nach 15 Tagen?", "de"),
        ("Combien coûte l'abonnement Pro par mois ?", "fr"),
        ("¿Cuándo abren?", "es"),
        ("Quanto costa?", "it"),
        ("Hoeveel kost het?", "nl"),
        ("Hversu mikið kostar þetta?", "is"),
        ("返金はいつですか", "ja"),
        ("Сколько стоит подписка Pro в месяц?", "ru"),
    ],
)
def test_another_language_is_named(question, language):
    assert find_foreign_language(question) == language


@pytest.mark.parametrize(
    "question",
    [
        "warden 3 battery life?",
        "how much cost pro plan per month pls",
        "SSO?",
        "12 * 12",
        "Porter Duo price",
        "next song",
        "so what about Ghent",
        "refnd plz, parcel brokn",
        "?",
    ],
)
def test_terse_and_misspelt_english_passes(question):
    assert find_foreign_language(question) == ""
