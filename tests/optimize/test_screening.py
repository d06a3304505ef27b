"""Candidates judged by labels alone."""

import pytest

from optimize.compiler.screening import loss
from program.loop.decisions import Decision


def test_a_reply_that_nobody_could_read_is_neither_right_nor_wrong():
    unread = Decision(False, 0.0, undecided=True)
    for wanted in (True, False):
        even = loss({"fits": Decision(True, 0.5)}, {"fits": wanted})
        assert loss({"fits": unread}, {"fits": wanted}) == pytest.approx(even)
