"""Which questions an English-only model refuses."""

import pytest

from program.loop.language import foreign


@pytest.mark.parametrize(
    ("question", "language"),
    [
        ("Wie bekomme ich mein Geld zurück nach 15 Tagen?", "German"),
        ("Combien coûte l'abonnement Pro par mois ?", "French"),
        ("¿Cuándo abren?", "Spanish"),
        ("Quanto costa?", "Italian"),
        ("Hoeveel kost het?", "Dutch"),
        ("Hversu mikið kostar þetta?", "another language (is)"),
        ("返金はいつですか", "Japanese"),
        ("Сколько стоит подписка Pro в месяц?", "Russian"),
    ],
)
def test_another_language_is_named(question, language):
    assert foreign(question) == language


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
    assert foreign(question) == ""
