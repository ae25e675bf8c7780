"""Private names of torch and transformers stand in one place, and may be missing."""

import ast
from pathlib import Path

import numpy as np
import pytest
import torch

import skcalib

ROOT = Path(skcalib.__file__).parent
PLACES = {"compat.py", "encoders/model/packed.py"}


@pytest.mark.parametrize(
    "path", sorted(ROOT.rglob("*.py")), ids=lambda path: path.relative_to(ROOT).as_posix()
)
def test_private_names_of_dependencies_stand_in_one_place(path):
    private = [
        ast.unparse(node)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not node.attr.endswith("__")
        and {"torch", "transformers", "config"} & set(ast.unparse(node.value).split("."))
    ]
    assert not private or path.relative_to(ROOT).as_posix() in PLACES, private


def test_a_torch_without_the_name_is_taken(monkeypatch):
    monkeypatch.delattr(torch.cuda, "_is_in_bad_fork")
    X = np.random.default_rng(0).normal(size=(30, 2))
    flow = skcalib.NormalizingFlow(device="auto", max_epochs=1).fit(X)
    assert np.isfinite(flow.transform(X)).all()
