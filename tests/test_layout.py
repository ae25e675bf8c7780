"""The layout shows the architecture: who may import whom."""

import ast
from collections import defaultdict
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import skcalib

ROOT = Path(skcalib.__file__).parent
MODULES = sorted(ROOT.rglob("*.py"))

# The packages by floor: each imports only from the floors below, and from its own floor.
GROUND = {"base", "compat", "cosines", "inputs", "markdown", "process", "statistics"}
FLOORS = [
    GROUND,
    {"datasets", "metrics", "calibration"},
    {"encoders"},
    {"similarity", "model_selection", "inspection", "monitoring"},
    {"export", "evaluation"},
    {"cli"},
]
# The modules of calibration that calibrators share; else each imports only itself.
SHARED = {"glow", "map", "merging", "moments", "noise", "training"}
CALIBRATION = {p.stem for p in (ROOT / "calibration").iterdir() if "__" not in p.name}


def _is_of_types(node):
    """Whether it is ``if TYPE_CHECKING``, which only type checkers read."""
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


@cache  # most tests here ask for those of every module
def _imports(path, package="skcalib"):
    """Dotted names of a package that a module imports, wherever in it, to run."""
    found = set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    tree.body = [node for node in tree.body if not _is_of_types(node)]
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path} imports relatively"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return {name for name in found if name.split(".")[0] == package}


def _room(name):
    """Package at the top that a dotted name is in; an estimator is in none but `__init__`."""
    room = f"{name}.__init__".split(".")[1]
    return room if (ROOT / room).is_dir() or (ROOT / f"{room}.py").is_file() else "__init__"


@pytest.mark.parametrize("floor", range(len(FLOORS)))
def test_packages_import_only_from_floors_below(floor):
    below = set().union(*FLOORS[: floor + 1], {"__init__"} if FLOORS[floor] == {"cli"} else ())
    for room in FLOORS[floor]:
        paths = [path for path in MODULES if path.relative_to(ROOT).parts[0].startswith(room)]
        assert {_room(name) for path in paths for name in _imports(path)} <= below, room


def test_packages_import_in_no_circle():
    graph = defaultdict(set)
    for path in MODULES:
        room = path.relative_to(ROOT).parts[0].removesuffix(".py")
        graph[room] |= {_room(name) for name in _imports(path)} - {room}
    list(TopologicalSorter(graph).static_order())  # raises CycleError


@pytest.mark.parametrize("room", sorted(CALIBRATION))
def test_calibrators_know_nothing_of_texts_and_of_each_other(room):
    allowed = GROUND | {f"calibration.{name}" for name in (SHARED | {room})}
    place = ROOT / "calibration" / room
    for path in place.glob("*.py") if place.is_dir() else [place.with_suffix(".py")]:
        for name in _imports(path):
            _, package, module, *_ = name.split(".")
            assert {package, f"{package}.{module}"} & allowed, (path, name)
            assert module != "texts", path


def test_encoders_know_nothing_of_calibration():
    for path in (ROOT / "encoders").rglob("*.py"):
        assert "calibration" not in {_room(name) for name in _imports(path)}, path


def test_each_package_has_its_floor():
    beside = {p.name.removesuffix(".py") for p in ROOT.iterdir() if p.name[:2] != "__"}
    assert beside - {"py.typed"} == set().union(*FLOORS)


def test_modules_import_in_no_circle():
    names = {}
    for path in MODULES:
        parts = path.relative_to(ROOT.parent).with_suffix("").parts
        names[".".join(parts).removesuffix(".__init__")] = path
    graph = {}
    for name, path in names.items():
        # A dotted name leads to a module, or to a name in one.
        targets = {t if t in names else t.rpartition(".")[0] for t in _imports(path)}
        graph[name] = targets & {*names} - {name}
    list(TopologicalSorter(graph).static_order())


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_scikit_learns_private_names_are_imported_in_one_module(path):
    private = [name for name in _imports(path, "sklearn") if "._" in name]
    assert not private or path.name == "compat.py", private
