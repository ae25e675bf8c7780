"""Small faults put into the code, one at a time, to see whether a test notices.

Run by hand, for the better part of an hour, where there is `fork`::

    python benchmarks/mutants.py                     # all modules, every mutant
    python benchmarks/mutants.py _encoder/pooling --every 3  # one module, every third mutant

A mutant is the module with one operator, number, condition or statement changed. Each runs
the module's tests in a forked process that has the libraries loaded already, until one fails.

Printed: for each module the number of mutants and of survivors, and every survivor.
"""

import argparse
import ast
import copy
import importlib
import importlib.util
import os
import signal
import sys
import time
from importlib.machinery import SourceFileLoader
from pathlib import Path

ROOT = Path(__file__).parents[1]
NOT_THE_CONTRACT = ["-k", "not scikit_learn and not check"]
TESTS = {
    "_covariance/moments": [
        *("covariance/test_moments.py", "whitening/test_weights.py"),
        "whitening/test_estimator.py",
    ],
    "_whitening/estimator": [
        "whitening",
        "test_numbers.py::test_whitening_refuses_what_is_no_sample",
    ],
    "_flow/glow": ["flow/test_glow.py", "flow/test_gradient.py", "flow/test_estimator.py"],
    "_encoder/pooling": ["encoder/test_pooling.py", "encoder/test_estimator.py"],
}
SECONDS = 300  # for the tests of one mutant

SWAPS = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.Pow: ast.Mult,
    ast.MatMult: ast.Mult,
    ast.FloorDiv: ast.Div,
    ast.Mod: ast.Mult,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}


def swapped(operator):
    return SWAPS[type(operator)]()


def changes(node):
    """Yield name and function for each change that a node allows; the function makes it."""
    if type(getattr(node, "op", None)) in SWAPS:
        yield "operator", lambda n: setattr(n, "op", swapped(n.op))
    elif isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
        yield "comparison", lambda n: n.ops.__setitem__(0, swapped(n.ops[0]))
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield "constant", lambda n: setattr(n, "value", not n.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield "constant", lambda n: setattr(n, "value", n.value + 1)
    elif isinstance(node, ast.If | ast.IfExp | ast.While):
        yield "condition", lambda n: setattr(n, "test", ast.UnaryOp(ast.Not(), n.test))
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        yield "sign", lambda n: setattr(n, "op", ast.UAdd())


def mutants(source):
    """Yield line, kind, text before and after, and tree of every mutant."""
    tree = ast.parse(source)
    skipped = set()
    for node in ast.walk(tree):  # messages, annotations and parameters' ranges are no logic
        if isinstance(node, ast.JoinedStr | ast.Raise):
            skipped |= set(ast.walk(node))
        for field in ("annotation", "returns"):
            if getattr(node, field, None) is not None:
                skipped |= set(ast.walk(getattr(node, field)))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "warnings.warn":
            skipped |= set(ast.walk(node))
    for index, node in enumerate(ast.walk(tree)):
        if node in skipped:
            continue
        for kind, change in changes(node):
            mutated = copy.deepcopy(tree)
            other = next(n for i, n in enumerate(ast.walk(mutated)) if i == index)
            change(other)
            before, after = ast.unparse(node), ast.unparse(other)
            if before != after:
                yield node.lineno, kind, before, after, ast.fix_missing_locations(mutated)


def is_noticed(path, tree, tests):
    """Whether the tests fail with this tree in the place of the module."""
    child = os.fork()
    if not child:
        os.setpgid(0, 0)
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
        original = SourceFileLoader.get_code

        def get_code(loader, name):
            if Path(loader.path) == path:
                return compile(tree, str(path), "exec")
            return original(loader, name)

        SourceFileLoader.get_code = get_code
        import pytest

        names = [str(ROOT / "tests" / name) for name in tests]
        options = ["-x", "-q", "-p", "no:cacheprovider", "--rootdir", str(ROOT)]
        # Plugins that the libraries above have imported already.
        options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
        os._exit(pytest.main([*names, *options, *NOT_THE_CONTRACT]) != 0)
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status != 0
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return True  # it hangs, which is noticed


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("modules", nargs="*", default=list(TESTS))
    parser.add_argument("--every", type=int, default=1)
    options = parser.parse_args()
    os.environ["HF_HUB_OFFLINE"] = "1"
    sys.path.insert(0, str(ROOT))
    os.chdir(ROOT)
    for name in (
        "torch",
        "transformers",
        "sklearn.utils.estimator_checks",
        "pandas",
        "skops.io",
    ):
        if importlib.util.find_spec(name.split(".")[0]):
            importlib.import_module(name)
    import torch

    torch.set_num_threads(1)  # OpenMP's threads would not survive the fork
    for module in options.modules:
        path = ROOT / "skcalib" / f"{module}.py"
        chosen = list(mutants(path.read_text()))[:: options.every]
        if is_noticed(path, ast.parse(path.read_text()), TESTS[module]):
            sys.exit(f"{module}: its tests fail without a mutant.")
        print(f"{module}: {len(chosen)} mutants", flush=True)
        survivors = 0
        for number, (line, kind, before, after, tree) in enumerate(chosen):
            if not is_noticed(path, tree, TESTS[module]):
                survivors += 1
                print(f"  {number}: line {line}, {kind}: {before} -> {after}", flush=True)
        print(f"{module}: {survivors} of {len(chosen)} survive", flush=True)


if __name__ == "__main__":
    main()
