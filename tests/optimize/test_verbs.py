"""The verbs of `ragc`: how many they are, the panels they stand in, and the examples that their help shows."""

import shlex

import pytest
from typer.main import get_command

from ragc.optimize.cli.examples import EXAMPLES
from ragc.optimize.cli.main import PANELS, app
from tests.optimize.conftest import invoke

MOST = 26
ROOT = get_command(app)


def walk(command, path=()):
    """Every verb that a help shows, by its whole name."""
    if not hasattr(command, "commands"):
        return {" ".join(path): command}
    found = {}
    for name, below in command.commands.items():
        found |= {} if below.hidden else walk(below, (*path, name))
    return found


VERBS = walk(ROOT)


def test_the_verbs_are_few_and_each_stands_in_one_panel_with_two_examples():
    listed = [name for names in PANELS.values() for name in names]
    assert len(VERBS) <= MOST and len(listed) == len(set(listed))
    assert set(listed) == {name.split()[0] for name in VERBS} and set(EXAMPLES) == set(VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_an_example_is_a_command_line_that_the_verb_takes(verb):
    for line in EXAMPLES[verb]:
        assert line in invoke(*verb.split(), "--help").stdout.replace("\n    ", "\n")
        words = shlex.split(line.removeprefix(f"ragc {verb}"))
        assert VERBS[verb].make_context(verb, words).params
