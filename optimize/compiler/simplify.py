"""A setting rid of what it owes to chance: every value that does no good is put back where the search started."""

from __future__ import annotations

from collections.abc import Callable

from program.errors import BudgetStop
from program.loop.policy import Setting

EQUAL = 1e-9


def simplified(setting: Setting, start: Setting, worth: Callable[[Setting], float]) -> Setting:
    """The setting with each value of `start` that is worth no less there, one after the other, by name.

    A search turns many parameters at once, and keeps with those that helped those that happened to be turned with
    them. Ends early, with what is reached, when a cap on calls is.
    """
    reached = dict(setting)
    try:
        least = worth(reached)
        for name in sorted(reached):
            if reached[name] == start.get(name, reached[name]):
                continue
            tried = {**reached, name: start[name]}
            found = worth(tried)
            if found >= least - EQUAL:
                reached, least = tried, max(found, least)
    except BudgetStop:
        pass
    return reached
