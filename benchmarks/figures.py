"""What every benchmark shares: figures beside their bars, two ways to print them, and the two options."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import orjson

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # for tests.support

Figure = dict[str, Any]
WIDTH = 72  # of a figure's name


def figure(name: str, value: float, bar: str, n: int, digits: int = 4) -> Figure:
    """Return one line; a `bar` is `<= x`, `>= x`, `> x` or `x to y`, any other only reports."""
    return {"figure": name, "value": round(value, digits), "bar": bar, "holds": _holds(value, bar), "n": n}


def show(found: Iterable[Figure], as_json: bool) -> None:
    """Print figures as JSON, NumPy's numbers too, or as lines of a table, each as soon as it is found."""
    if as_json:
        print(orjson.dumps(list(found), option=orjson.OPT_SERIALIZE_NUMPY).decode())
        return
    for one in found:
        verdict = "holds" if one["holds"] else "MISSED"
        line = f"{one['figure']:<{WIDTH}} {one['value']:>10.4f}  {one['bar']:<12} {verdict:<7} n={one['n']}"
        print(line, flush=True)


def run_benchmark(about: str | None, measure: Callable[[bool], Iterable[Figure]]) -> None:
    """Read `--quick` and `--json`, and show what is measured."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="under a minute: fewer runs")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    show(measure(options.quick), options.json)


def find_datasets(*names: str) -> list[Path]:
    """Return the folders of public sets that RAGC_DATASETS holds; stderr says which are left out."""
    kept = Path(os.environ.get("RAGC_DATASETS", ""))
    found = [kept / name for name in names if os.environ.get("RAGC_DATASETS") and (kept / name).is_dir()]
    if lost := [name for name in names if kept / name not in found]:
        print(f"Left out, as RAGC_DATASETS names no folder that holds them: {', '.join(lost)}.", file=sys.stderr)
    return found


def _holds(value: float, bar: str) -> bool:
    sign, _, limit = bar.partition(" ")
    if limit.startswith("to "):
        return float(sign) <= value <= float(limit.removeprefix("to "))
    return {
        "<=": lambda: value <= float(limit),
        ">=": lambda: value >= float(limit),
        ">": lambda: value > float(limit),
    }.get(sign, lambda: True)()
