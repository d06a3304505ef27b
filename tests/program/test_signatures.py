"""A signature's docstring is its prompt."""

import dspy
import pytest

from program import signatures

EVERY = [s for s in vars(signatures).values() if isinstance(s, type) and issubclass(s, dspy.Signature)]


@pytest.mark.parametrize("signature", [s for s in EVERY if s is not dspy.Signature], ids=lambda s: s.__name__)
def test_every_prompt_shows_a_good_output_and_a_bad_one_in_a_few_words(signature):
    told = signature.instructions
    assert ("Good" in told and "Bad" in told) or ("Which plan do you mean" in told and "Never" in told)
    assert len(told.split()) < 130
