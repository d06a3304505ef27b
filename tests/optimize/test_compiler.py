"""The compiler end to end: caps that hold, failures that are borne, interruptions that lose nothing."""

import pytest

from optimize.compiler import compile_project
from program.errors import BudgetError
from program.manifest import read, verify
from program.reference import resolve
from program.settings import Project


def compile_(folder, **options):
    return compile_project(Project.open(folder), **{"trials": 6, **options})


def digest_of(folder, done):
    return read(resolve(done.reference, folder / "artifacts").path).content_digest


def test_a_second_compile_calls_nothing_and_ends_in_the_same_program(paid_shop, model):
    first = compile_(paid_shop)
    paid = len(model.calls)
    second = compile_(paid_shop)
    assert first.calls == paid > 0
    assert (second.calls, len(model.calls)) == (0, paid)
    assert second.reference != first.reference
    assert digest_of(paid_shop, second) == digest_of(paid_shop, first)
    assert (first.looks, second.looks) == (1, 2)
