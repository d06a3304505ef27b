"""What a compile of anybody's program is given: a factory and a metric by name, and labelled examples."""

from __future__ import annotations

import importlib
import inspect
import math
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import dspy
import orjson
from dspy.adapters.types.decision import Choice, Noul, decision_type
from pydantic import ConfigDict, Field

from ragc.errors import DataError, SettingsError
from ragc.optimize.labelled.dataset import Question, Split
from ragc.optimize.labelled.split import divide_groups
from ragc.serve.factory import Factory, decide_enums

Metric = Callable[..., Any]
NAMED = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
LEAST = 12  # examples under which no split leaves anything to learn from, to choose on and to test on
MOST_VALUES, EACH = 12, 3  # values of a label that are tags, at most, and the examples of each, about, at least
LONGEST_TAG = 60  # characters of a label by whose value examples are divided alike


class ExampleQuestion(Question):
    """An example as a registry and statistics know it: its inputs as JSON are the question."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    example: Any = Field(exclude=True, repr=False)  # as DSPy knows it


def split_examples(examples: Sequence[ExampleQuestion], before: Mapping[str, str]) -> dict[str, list[ExampleQuestion]]:
    """Return train, dev and test, divided by topic.

    Raises `DataError` when train or test has nothing.
    """
    topics: dict[str, list[ExampleQuestion]] = defaultdict(list)
    for one in examples:
        topics[one.cluster].append(one)
    parts = divide_groups(examples, list(topics.values()), before=before)
    if len(examples) < LEAST or not parts["train"] or not parts["test"]:
        what = f"{len(examples)} examples are too few to learn from and to test on."
        raise DataError(what, f"Label {LEAST} at least, or give each a split: {', '.join(get_args(Split))}.")
    return parts


def is_named(text: str) -> bool:
    """Tell whether a text names something in a module: `my_pkg.triage:make`."""
    return NAMED.fullmatch(text) is not None


def import_function(name: str) -> Callable[..., Any]:
    """Import a function named as `my_pkg.triage:make`, from the working folder too.

    Whoever names it trusts its module. Raises `SettingsError` when there is none.
    """
    module, _, attribute = name.partition(":")
    if not is_named(name):
        raise SettingsError(f"{name!r} names no function.", "Write MODULE:FUNCTION, such as my_pkg.triage:make.")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    try:
        found = getattr(importlib.import_module(module), attribute)
    except AttributeError as error:
        raise SettingsError(f"{module} has no {attribute}.", "Name a function that it defines.") from error
    except ModuleNotFoundError as error:
        what = f"There is no module {error.name} to import {name} from."
        mend = f"Write {module.removesuffix('.py')}:{attribute}." if module.endswith(".py") else ""
        raise SettingsError(what, mend or "Run ragc in the folder that holds it, or install it.") from error
    except Exception as error:
        what = f"Importing {module} raised {type(error).__name__}: {error}."
        raise SettingsError(what, "Mend it: python -c 'import " + module + "'") from error
    if isinstance(found, dspy.Module):
        raise SettingsError(f"{name} is a program, not a function that makes one.", "Name a function that returns it.")
    if not callable(found):
        raise SettingsError(f"{name} is not a function.", "Name a function.")
    return found  # type: ignore[no-any-return]


def import_task(program: str, data: Path | None, metric: str, options: str, *also: str) -> tuple[Factory, Path, Metric]:
    """Return a program's factory, the file of its examples, and its metric.

    Raises `DataError` when the metric, the file or what is needed `also` is missing; `options` give the last two.
    """
    if data is None or not all((metric, *also)):
        raise DataError(f"What {program} is measured on is not said.", f"Add {options} --metric MODULE:FUNCTION.")
    return import_function(program), data, import_function(metric)


def list_inputs(program: dspy.Module) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of a program's inputs, needed and optional.

    An optional one that a predictor makes is taken for a label. Raises `SettingsError` for a module without forward.
    """
    if not hasattr(type(program), "forward"):
        raise SettingsError(f"{type(program).__qualname__} has no forward.", "Give it one; aforward may stand beside.")
    named = list(inspect.signature(type(program).forward).parameters.values())[1:]
    predictors = [one for _, one in program.named_predictors()]
    made = {name for one in predictors for name in one.signature.output_fields}
    if any(p.kind is p.VAR_KEYWORD for p in named):
        wanted = (name for one in predictors for name in one.signature.input_fields)
        return tuple(name for name in dict.fromkeys(wanted) if name not in made), ()
    optional = tuple(p.name for p in named if p.default is not p.empty and p.name not in made)
    return tuple(p.name for p in named if p.default is p.empty), optional


def list_outputs(program: dspy.Module) -> dict[str, list[Any]]:
    """Return each output of a program's predictors with the options of its labels.

    What is neither a choice nor yes or no has none.
    """
    found: dict[str, list[Any]] = {}
    for _, predictor in program.named_predictors():
        for name, field in decide_enums(predictor.signature).output_fields.items():
            kind: Any = decision_type(field) or object
            options = found.setdefault(name, [])
            if issubclass(kind, Choice):
                options += get_args(kind.model_fields["value"].annotation)
            elif issubclass(kind, Noul):
                options += [True, False]
    return found


def read_examples(path: Path, program: dspy.Module) -> list[ExampleQuestion]:
    """Return the examples of a JSON Lines file, objects of inputs and labels.

    `id`, `split` and, unless a predictor makes them, `topic` (which groups examples that succeed and fail together) and
    `tags` mean what they do in labelled questions; a tag that names a label stands for its value, too. Labels of few
    values are tags unasked. Raises `DataError` for the first line that is no example.
    """
    try:
        lines = [(n, line) for n, line in enumerate(path.read_bytes().splitlines(), 1) if line.strip()]
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}.", "Name a file of JSON Lines.") from error
    needed, optional = list_inputs(program)
    outputs = list_outputs(program)
    rows = [_read_line(f"{path} line {n}", line, needed, outputs) for n, line in lines]
    few = {name for name, options in outputs.items() if options or _are_few([row.get(name) for row in rows])}
    found: dict[str, ExampleQuestion] = {}
    for n, row in enumerate(rows):
        id_, split = str(row.get("id") or f"e{n + 1:06}"), row.get("split")
        if id_ in found or split not in (None, *get_args(Split)):
            amiss = f"the id {id_} is there twice" if id_ in found else f"{split!r} is no split"
            what = f"{path} line {lines[n][0]}: {amiss}."
            raise DataError(what, f"Give each its own id, and of splits only {', '.join(get_args(Split))}.")
        own = [] if "tags" in outputs else row.get("tags") or []
        labels = {name: value for name, value in row.items() if name in few or (name in outputs and name in own)}
        tags = [f"{name}={value}" for name, value in labels.items() if len(str(value)) <= LONGEST_TAG]
        inputs = [*needed, *(name for name in optional if row.get(name) is not None)]
        found[id_] = ExampleQuestion(
            id=id_,
            question=orjson.dumps({name: row[name] for name in inputs}, option=orjson.OPT_SORT_KEYS).decode(),
            topic="" if "topic" in outputs else str(row.get("topic") or ""),
            tags=(*tags, *(tag for tag in own if tag not in labels)),
            split=split,
            example=dspy.Example(**row).with_inputs(*inputs),
        )
    return list(found.values())


def _are_few(values: Sequence[Any]) -> bool:
    """Tell whether labels have few values, each of several examples: not the numbers of customers."""
    known = [str(value) for value in values if value is not None]
    return len(set(known)) <= MOST_VALUES and EACH * len(set(known)) <= len(known)


def _read_line(
    where: str, line: bytes, inputs: Sequence[str], outputs: Mapping[str, Collection[Any]]
) -> dict[str, Any]:
    try:
        row = orjson.loads(line)
    except ValueError as error:
        raise DataError(f"{where} is not JSON: {error}.", "Write one JSON object a line.") from error
    if not isinstance(row, dict):
        raise DataError(f"{where} is not a JSON object.", "Write one JSON object a line.")
    tags = [] if "tags" in outputs else row.get("tags") or []
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise DataError(f"{where}: tags is no list of texts.", 'Write "tags": ["one", "another"], or leave it out.')
    if lost := [name for name in inputs if row.get(name) is None]:
        what = f"{where} has no {', '.join(lost)}, which the program takes."
        raise DataError(what, f"Give every example the inputs {', '.join(inputs)}.")
    for name, options in outputs.items():
        if options and row.get(name) is not None and str(row[name]) not in (told := [str(one) for one in options]):
            what = f"{where}: the {name} {row[name]!r} is none of its options."
            raise DataError(what, f"Label it as one of: {', '.join(told)}; or add the label to the program.")
    return row


def score_prediction(metric: Metric, example: dspy.Example, prediction: Any) -> tuple[float, str]:
    """Return a metric's score and feedback; raises `DataError` unless finite."""
    wanted = [
        p for p in inspect.signature(metric).parameters.values() if p.default is p.empty and p.kind < p.VAR_POSITIONAL
    ]
    found = metric(example, prediction, *[None] * max(0, len(wanted) - 2))
    score = found.get("score") if isinstance(found, dict) else getattr(found, "score", found)
    feedback = found.get("feedback") if isinstance(found, dict) else getattr(found, "feedback", "")
    if not isinstance(score, int | float) or not math.isfinite(score):
        raise DataError(f"The metric gave {found!r}, which is no number.", "Have it return a number or a bool.")
    return float(score), str(feedback or "")


def check_metric(metric: Metric, example: dspy.Example, prediction: Any) -> None:
    """Raise `DataError` when a metric cannot score a prediction."""
    try:
        score_prediction(metric, example, prediction)
    except DataError:
        raise
    except Exception as error:
        name = getattr(metric, "__qualname__", repr(metric))
        what = f"The metric {name} raised {type(error).__name__}: {error}."
        raise DataError(what, "Mend it: it is called as metric(example, prediction, trace).") from error
