"""The layout shows the architecture: who may import whom, and how much a reader must hold."""

import ast
from collections import defaultdict
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import skcalib

ROOT = Path(skcalib.__file__).parent
MODULES = sorted(ROOT.rglob("*.py"))

# What each private package may import of skcalib, beside itself.
ALLOWED = {
    "_machine": set(),
    "_store": {"_machine", "_base", "_sklearn_compat"},
    "_covariance": {"_machine"},
    "_encoder": {
        *("_machine", "_store", "datasets"),
        *("_base", "_dask", "_sklearn_compat", "_texts"),
    },
    "_whitening": {"_machine", "_covariance", "_base", "_dask", "_sklearn_compat", "_vectors"},
    "_groups": {
        *("_covariance", "_whitening"),
        *("_base", "_dask", "_labels", "_sklearn_compat", "_vectors"),
    },
    "_neighbors": {"_machine", "_base", "_sklearn_compat", "_vectors"},
    "_scale": {"_neighbors", "_base", "_sklearn_compat", "_vectors"},
    "_classifier": {
        *("_encoder", "_whitening", "_neighbors", "_calibrators"),
        *("_base", "_labels", "_sklearn_compat", "_texts", "_vectors"),
        *("_command_line", "export", "model_selection"),  # of its command
    },
    "_answers": {
        *("_encoder", "_neighbors", "_calibrators"),
        *("_machine", "_base", "_labels", "_sklearn_compat", "_texts", "_vectors"),
    },
    "_duplicates": {
        *("_machine", "_encoder", "_neighbors", "_scale", "_calibrators"),
        *("_base", "_sklearn_compat", "_texts", "_vectors"),
    },
    "_flow": {"_machine", "_covariance", "_base", "_dask", "_sklearn_compat", "_vectors"},
}


@cache  # most tests here ask for those of every module
def _imports(path, package="skcalib"):
    """Dotted names of a package that a module imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path} imports relatively"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return {name for name in found if name.split(".")[0] == package}


@cache
def _rooms():
    """Rooms that each room imports; an estimator at the top is of none but `__init__`."""
    known = {path.name.removesuffix(".py") for path in ROOT.iterdir()}
    rooms = defaultdict(set)
    for path in MODULES:
        room = path.relative_to(ROOT).parts[0].removesuffix(".py")
        targets = {f"{name}.__init__".split(".")[1] for name in _imports(path)}
        rooms[room] |= {t if t in known else "__init__" for t in targets} - {room}
    return rooms


@pytest.mark.parametrize("package", ALLOWED)
def test_a_private_package_imports_only_what_is_below_it(package):
    assert _rooms()[package] <= ALLOWED[package]


def test_every_private_package_has_its_rule():
    packages = {p.name for p in ROOT.iterdir() if p.is_dir() and p.name[:2] != "__"}
    assert packages == {*ALLOWED, *skcalib.PACKAGES} - {"metrics"}


def test_rooms_import_in_no_circle():
    list(TopologicalSorter(_rooms()).static_order())  # raises CycleError


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


def test_few_entries_lie_beside_the_packages():
    beside = [p.name for p in ROOT.iterdir() if p.is_file()]
    assert len(beside) <= 15, beside


@pytest.mark.parametrize("package", ALLOWED)
def test_a_private_package_says_nothing_in_its_init(package):
    assert (ROOT / package / "__init__.py").read_text() == ""


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_scikit_learns_private_names_are_imported_in_one_module(path):
    private = [name for name in _imports(path, "sklearn") if "._" in name]
    assert not private or path.name == "_sklearn_compat.py", private
