"""Which questions an English-only model refuses."""

import pytest

from program.language import foreign


@pytest.mark.parametrize(
    ("question", "language"),
    [
        ("Wie bekomme ich mein Geld zurück nach 15 Tagen?", "de"),
        ("Combien coûte l'abonnement Pro par mois ?", "fr"),
        ("返金はいつですか", "ja"),
        ("Сколько стоит подписка Pro в месяц?", "ru"),
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
        "refnd plz, parcel brokn",
        "?",
    ],
)
def test_terse_and_misspelt_english_passes(question):
    assert foreign(question) == ""
