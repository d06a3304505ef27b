"""k-center: few demonstrations that leave none far away."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from optimize.compiler.demonstrations import Demonstration
from optimize.compiler.diversity import centers, diverse
from program.models.embedded.encoder import shared_embedder


@settings(deadline=None)
@given(st.integers(1, 40), st.integers(1, 8), st.integers(0, 2**16))
def test_the_centers_are_within_twice_the_best_radius_of_any_other_choice_tried(n, k, seed):
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(n, 5)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)

    def radius(chosen):  # Euclidean, in which the bound holds
        return max(min(float(np.linalg.norm(v - vectors[c])) for c in chosen) for v in vectors)

    chosen = centers(vectors, k)
    assert len(set(chosen)) == len(chosen) == min(k, n)
    others = [rng.choice(n, min(k, n), replace=False) for _ in range(20)]
    assert radius(chosen) <= 2 * min(map(radius, others)) + 1e-5


def test_few_keep_their_order_every_label_and_what_is_unlike_the_rest():
    asked = [f"How many watts does machine {n} draw?" for n in range(12)] + ["Who wrote the poem about the sea?"]
    many = [
        Demonstration("judge.relevance", str(n), {"question": text, "relevant": n % 4 == 1})
        for n, text in enumerate(asked)
    ]
    few = diverse(many, 4, shared_embedder())
    assert [one for one in many if one in few] == few
    assert len(few) == 4
    assert {one.fields["relevant"] for one in few} == {True, False}
    assert many[-1] in few
