"""Settings scored by replay: what opens no branch is arithmetic alone."""

from collections import Counter

import dspy
import numpy as np
import pytest

from optimize.compiler import calls, replay
from optimize.compiler.journal import create
from optimize.compiler.scoring import Scoring
from optimize.compiler.spending import Spending
from optimize.compiler.study import Live, Search
from program.knowledge.library import Library
from program.models.embedded.encoder import Embedder
from program.models.embedded.writer import WriterEngine
from program.models.language.adapter import FencedAdapter
from program.models.language.gateway import Gateway
from tests.optimize.conftest import prepared

WORK = {
    "runs the loop": [(replay, "steps")],
    "asks a model": [(calls, "ask_model"), (WriterEngine, "write"), (WriterEngine, "complete"), (Gateway, "ask")],
    "searches": [(Library, "candidates"), (Library, "search")],
    "embeds": [(Embedder, "encode"), (Embedder, "read"), (Embedder, "alike")],
    "formats a prompt": [(adapter, "format_user_message_content") for adapter in (dspy.ChatAdapter, FencedAdapter)],
}


@pytest.fixture
def done(monkeypatch):
    """Counts how often each kind of work was done since it was cleared."""
    counted = Counter()

    def counting(kind, work):
        def counts(*given, **named):
            counted[kind] += 1
            return work(*given, **named)

        return counts

    for kind, places in WORK.items():
        for of, name in places:
            monkeypatch.setattr(of, name, counting(kind, getattr(of, name)))
    return counted


@pytest.fixture(params=["own_shop", "paid_shop"])
def folder(request):
    """A project answered by models of this process, and one answered by a language model."""
    return request.getfixturevalue(request.param)


def searched(ready, name):
    """A search that tries the settings it begins with, in a study of its own."""
    journal = create(ready.project, ready.identity(), {"id": name, "trials": 0})
    search = Search(ready.arms, ready.project.settings.utility, 0, ready.starts, journal)
    assert search.run(0, lambda live: None, Live(), Spending()) == ""
    return [(trial.setting, trial.worth, trial.judged_on, trial.pruned) for trial in search.trials]


def test_settings_that_open_no_branch_run_ask_search_embed_and_format_nothing(folder, done):
    ready = prepared(folder)
    scoring = Scoring(ready.arms, ready.project.settings.utility)
    first = [scoring(setting) for setting in ready.starts]
    assert done.keys() == WORK.keys()
    done.clear()
    unread = {"judge.relevance:relevant": 0.77, "judge.sufficiency:sufficient": 0.66}  # of a setting that never judges
    beside = scoring({**ready.starts[-1], **unread})
    again = [scoring(setting) for setting in reversed(ready.starts)]
    assert not done
    for one, other in zip([*first, first[-1]], [*reversed(again), beside], strict=True):
        assert all(map(np.array_equal, one.columns, other.columns, [True] * 4))


def test_trials_of_settings_that_are_known_run_ask_search_embed_and_format_nothing(folder, done):
    ready = prepared(folder)
    done.clear()
    first = searched(ready, "first")
    assert done["asks a model"] and done["formats a prompt"]
    done.clear()
    assert searched(ready, "second") == first
    ready.record.close()
    assert not done
    resumed = prepared(folder)  # with an empty memory: what it knows is in the record
    done.clear()
    assert searched(resumed, "third") == first
    assert not done
