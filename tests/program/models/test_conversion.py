"""Units: what is ruled out by a word that no unit holds would have come to nothing."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from program.models.rules import conversion
from program.models.rules.conversion import _OF_NO_UNIT, convert, no_unit

UNITS = "metre kilometres km mile inch ft hours s kg lb litres °C °f k stone acre µm watt 1".split()
BETWEEN = [*"per square cubic sq squared cubed in as at a us / // ° µ".split(), *sorted(_OF_NO_UNIT)]

phrases = st.lists(st.sampled_from(UNITS) | st.sampled_from(BETWEEN), min_size=1, max_size=5).map(" ".join)


@given(phrases, phrases)
def test_what_a_word_rules_out_pint_would_not_convert_either(unit: str, target: str) -> None:
    assume(no_unit(unit) or no_unit(target))
    assert conversion._converted(1.0, unit, target) == ""


@given(st.text("abcdefghiklmnoprstuwy°µ/ ", max_size=24).map(str.strip), st.sampled_from(sorted(_OF_NO_UNIT)))
def test_a_word_of_no_unit_makes_no_unit_of_any_text(text: str, word: str) -> None:
    phrase = f"{text} {word}"
    assume(no_unit(phrase))
    assert conversion._converted(1.0, phrase, "metre") == conversion._converted(1.0, "metre", phrase) == ""


@pytest.mark.parametrize("word", sorted(_OF_NO_UNIT))
def test_no_such_word_is_a_unit_a_plural_or_one_with_a_prefix(word: str) -> None:
    assert conversion._registry().parse_unit_name(word) == ()


@pytest.mark.parametrize(
    "question", ["Is the kettle sold in green", "how long is the guarantee", "my hours in my days"]
)
def test_a_question_of_plain_words_does_not_start_pint(question: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversion, "_converted", lambda *given: pytest.fail("pint was asked"))
    assert convert(question) == ""


def test_what_divides_a_word_by_itself_is_still_read() -> None:
    assert convert("how many metres the/the in 2 km") == "2 km is 2,000 metres the/the."
