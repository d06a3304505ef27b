"""What the two packages promise of themselves: their size, their names, their prose, their doors."""

import ast
import re
import sys
import tomllib
from collections import defaultdict
from functools import cache
from importlib import import_module
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = {"program": "ragc", "optimize": "ragc.optimize"}
MOST_LINES, MOST_DOUBLED, MOST_PACKAGES = 450, 8, 35
ONE_WORD, FIRST_LINE = 0.35, 80
NO_VERB = re.compile(
    r"(?:A|All|An|And|As|At|By|Each|Every|For|From|How|In|It|Its|No|Nothing|Of|On|One|So|Such|That|The|This|Those|To|What"
    r"|When|Where|Whether|Which|Who|Why|With)\b"
)

Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def modules():
    found = {}
    for folder, package in PACKAGES.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = (package, *path.relative_to(ROOT / folder).with_suffix("").parts)
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            found[name] = (path, ast.parse(path.read_text()))
    return found


def test_every_folder_with_code_is_a_package_that_is_installed():
    found = {
        ".".join((package, *path.parent.relative_to(ROOT / folder).parts))
        for folder, package in PACKAGES.items()
        for path in (ROOT / folder).rglob("*.py")
    }
    assert set(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]) == found


def functions():
    for name, (_, tree) in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, Function) and not (node.name.startswith("__") and node.name.endswith("__")):
                yield name, node


def imported(tree):
    """The modules that a module imports, in functions and for types only as well."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name for name in inner if name in modules())
            if any(name not in modules() for name in inner):
                yield node.module


def test_no_file_is_longer_than_four_hundred_and_fifty_lines():
    sizes = {name: len(path.read_text().splitlines()) for name, (path, _) in modules().items()}
    assert {name: size for name, size in sizes.items() if size > MOST_LINES} == {}


def test_no_module_reaches_itself_through_its_imports():
    edges = {name: {other for other in imported(tree) if other in modules()} for name, (_, tree) in modules().items()}
    while leaves := {name for name, others in edges.items() if not others & edges.keys()}:
        edges = {name: others for name, others in edges.items() if name not in leaves}
    assert sorted(edges) == []


@cache
def doors():
    """What each room (a folder within `program` or `optimize`) lets the rest of the house enter."""
    rooms = [
        name for name, (path, _) in modules().items() if name not in PACKAGES.values() and path.name == "__init__.py"
    ]
    return {room: set(import_module(room).__all__) for room in rooms}


def taken():
    """Yield (importing module's folder, dotted name) of all that modules of the house take from each other."""
    for name, (path, tree) in modules().items():
        folder = name if path.name == "__init__.py" else name.rpartition(".")[0]
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] == "ragc":
                yield from ((folder, f"{node.module}.{alias.name}") for alias in node.names)


def test_a_room_is_entered_through_its_door_which_is_no_wider_than_need_be():
    entered = {room: set() for room in doors()}
    for folder, name in taken():
        for room in doors():
            if name.startswith(f"{room}.") and not f"{folder}.".startswith(f"{room}."):
                entered[room].add(name.removeprefix(f"{room}.").partition(".")[0])
    assert {room: sorted(found - doors()[room]) for room, found in entered.items() if found - doors()[room]} == {}
    pages = "".join(page.read_text() for page in (ROOT / "docs").glob("*.md"))
    named = {room: {one for one in door if f"{room}.{one}" in pages} for room, door in doors().items()}
    assert doors() == {room: found | named[room] for room, found in entered.items()}


def test_no_module_takes_a_private_name_of_another():
    assert [name for _, name in taken() if name.rpartition(".")[2].startswith("_")] == []


def test_what_a_benchmark_takes_from_the_house_is_there():
    lost = [
        f"{path.name}: {node.module}.{alias.name}"
        for path in (ROOT / "benchmarks").glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] == "ragc"
        for alias in node.names
        if not hasattr(import_module(node.module), alias.name)
    ]
    assert lost == []


def test_a_public_name_is_defined_in_one_file():
    homes = defaultdict(set)
    for name, (_, tree) in modules().items():
        for node in tree.body:
            if isinstance(node, Function | ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].add(name)
    doubled = {name: sorted(places) for name, places in homes.items() if len(places) > 1}
    assert len(doubled) <= MOST_DOUBLED, doubled


def test_most_functions_are_named_by_more_than_one_word():
    names = [node.name.strip("_") for _, node in functions()]
    assert sum("_" not in name for name in names) <= ONE_WORD * len(names)


@pytest.mark.parametrize(("package", "most"), [("program", 24_281), ("optimize", 14_388)])
def test_a_package_has_no_more_lines_than_its_budget(package, most):
    assert sum(len(path.read_text().splitlines()) for path in (ROOT / package).rglob("*.py")) <= most


def test_the_docstring_of_a_public_function_is_one_short_line_that_begins_with_a_verb():
    found = {
        f"{name}.{node.name}": text.splitlines()[0]
        for name, node in functions()
        if not node.name.startswith("_") and not _is_property(node) and (text := ast.get_docstring(node))
    }
    wanting = {name: line for name, line in found.items() if NO_VERB.match(line) or len(line) >= FIRST_LINE}
    assert len(wanting) <= 0.02 * len(found), wanting


def _is_property(node):
    return any(isinstance(one, ast.Name) and "property" in one.id for one in node.decorator_list)


@pytest.mark.parametrize("module", ["ragc.answer", "ragc.passage", "ragc.settings", "ragc.serve.reference"])
def test_every_field_that_a_user_meets_has_a_sentence(module):
    _, tree = modules()[module]
    bare = []
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            for field, after in zip(node.body, [*node.body[1:], None], strict=True):
                if isinstance(field, ast.AnnAssign) and not _is_text(after) and "ClassVar" not in ast.unparse(field):
                    bare.append(f"{node.name}.{ast.unparse(field.target)}")
    assert bare == []


def _is_text(node):
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def test_every_required_package_is_imported_and_every_imported_package_is_required():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    required = {_plain(line) for line in project["dependencies"]}
    optional = {_plain(line) for lines in project["optional-dependencies"].values() for line in lines}
    homes = packages_distributions()
    used = set()
    for _, tree in modules().values():
        for name in imported(tree):
            root = name.partition(".")[0]
            if root not in sys.stdlib_module_names and root != "ragc":
                found = {_plain(one) for one in homes.get(root, [root])}
                used |= found & (required | optional) or found
    assert required - used == set()
    assert used - required - optional == set()
    assert len(required) <= MOST_PACKAGES


def _plain(requirement):
    """The name of a package as the index writes it, without extras and versions."""
    return re.sub(r"[-_.]+", "-", re.split(r"[\[<>=!~; ]", requirement, maxsplit=1)[0]).lower()
