"""Callbacks of scikit-learn see what takes long in a fit: folds, texts, epochs, candidates."""

import json
from collections import Counter

import numpy as np
import pytest
from estimators import CASES, FITTED, TEXTS
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from skcalib import (
    BertEncoder,
    BiEncoder,
    CalibrationSearch,
    NormalizingFlow,
    SearchEncoder,
    TextEncoder,
    Whitening,
)

callback = pytest.importorskip("sklearn.callback")

pytestmark = pytest.mark.filterwarnings(
    "ignore:There are fewer than 5 samples",
    "ignore:The flow was fitted on fewer",
    "ignore:.*unknown to this model",
    "ignore:The encoder is calibrated on the stored questions",
)


class Recorder:
    """Write each event to a file, which workers share: its kind, estimator, task and path."""

    max_propagation_depth = None

    def __init__(self, path):
        self.path = str(path)

    def setup(self, estimator, context):
        self._write("setup", context)

    def teardown(self, estimator, context):
        self._write("teardown", context)

    def on_fit_task_begin(self, estimator, context):
        self._write("begin", context)

    def on_fit_task_end(self, estimator, context):
        self._write("end", context)

    def _write(self, kind, context):
        path, parent = [], context
        while parent is not None:
            path, parent = [parent.task_id, *path], parent.parent
        event = [kind, context.estimator_name, context.task_name, path]
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(event) + "\n")

    def events(self):
        with open(self.path, encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    def ended(self):
        """Count the tasks that have ended, by estimator and name; each has begun before."""
        begun, ended = set(), Counter()
        for kind, estimator, task, path in self.events():
            if kind == "begin":
                begun.add((estimator, *path))
            if kind == "end":
                begun.remove((estimator, *path))
                ended[estimator, task] += 1
        assert not begun
        return ended


@pytest.fixture
def recorder(tmp_path):
    (tmp_path / "events").touch()
    return Recorder(tmp_path / "events")


def letters(texts):
    """A vector for each text."""
    return np.array([[text.count(letter) + 0.1 for letter in "acdglmnot"] for text in texts])


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_grid_search_shows_folds_texts_and_epochs(tiny_bert, recorder, n_jobs):
    flow = NormalizingFlow(max_epochs=3, random_state=0)
    model = BiEncoder(make_pipeline(BertEncoder(tiny_bert), flow))
    grid = {"encoder__bertencoder__layers": [1, 2]}
    search = GridSearchCV(model, grid, scoring=lambda *_: 0.0, cv=2, n_jobs=n_jobs)
    search.set_callbacks(recorder).fit(TEXTS)
    ended, n_fits = recorder.ended(), 5  # two folds of each candidate, and the best on all
    assert ended["GridSearchCV", "fit"] == 1
    assert ended["BiEncoder", "fit"] == ended["Pipeline", "fit"] == n_fits
    assert ended["NormalizingFlow", "epoch"] == 3 * n_fits
    assert ended["BertEncoder", "encode"] == 4 * len(TEXTS) // 2 + len(TEXTS)


@pytest.mark.parametrize("n_texts", [1, 60, 100, 101, 250])
def test_each_hundredth_of_the_texts_is_a_task(recorder, n_texts):
    texts = [f"a{i % 90}" for i in range(n_texts)]
    encoder = TextEncoder(letters, batch_size=7).set_callbacks(recorder)
    assert_array_equal(encoder.fit_transform(texts), letters(texts))
    size = -(-n_texts // 100)
    assert recorder.ended()["TextEncoder", "encode"] == -(-n_texts // size)
    assert recorder.events()[-1][0] == "teardown"


@pytest.mark.parametrize("name", FITTED)
def test_every_fit_is_a_task_and_clones_keep_callbacks(name, tiny_bert, recorder):
    case = CASES[name]
    estimator = case.make(TextEncoder(letters))
    if name == "BertEncoder":
        estimator.set_params(model=tiny_bert)
    plain = clone(estimator).fit(*case.given)
    clone(estimator.set_callbacks(recorder)).fit(*case.given)
    assert recorder.ended()[name, "fit"] == 1
    kinds = [kind for kind, *_ in recorder.events()]
    assert (kinds[0], kinds[-1]) == ("setup", "teardown")
    assert_array_equal(case.use(estimator.fit(*case.given)), case.use(plain))
    assert {*vars(estimator)} - {*vars(plain)} == {"_skl_callbacks"}


@pytest.mark.parametrize("name", FITTED)
def test_a_fit_that_fails_ends_its_callbacks_and_leaves_nothing(name, recorder):
    case = CASES[name]
    estimator = case.make(TextEncoder(letters)).set_callbacks(recorder)
    with pytest.raises((ValueError, OSError)):
        estimator.fit(*case.bad)
    with pytest.raises(NotFittedError):
        case.use(estimator)
    kinds = [kind for kind, *_ in recorder.events()]
    assert kinds.count("setup") == kinds.count("teardown")


@pytest.mark.parametrize(
    "name", ["NearestAnswer", "SearchEncoder", "SimilarityScale", "ZeroShotClassifier"]
)
def test_steps_of_an_encoder_are_tasks_inside(name, recorder):
    steps = make_pipeline(TextEncoder(letters), Whitening(power="auto"))
    estimator = CASES[name].make(steps).set_params(encoder=steps)
    y = [range(len(TEXTS))] if name == "NearestAnswer" else []
    estimator.set_callbacks(recorder).fit(TEXTS, *y)
    ended = recorder.ended()
    assert ended["TextEncoder", "encode"] == len(TEXTS)
    assert ended["Whitening", "fit"] == 1
    assert {path[0] for _, _, _, path in recorder.events()} == {0}
    assert not hasattr(steps, "_parent_callback_ctx")


def test_a_search_shows_its_candidates(tiny_bert, recorder):
    texts = [f"{text} and {text}" for text in TEXTS]
    search = CalibrationSearch(tiny_bert, pooling=["mean", "cls"], layers=[1, 2], n_texts=20)
    search.set_callbacks(recorder).fit(texts)
    ended = recorder.ended()
    assert ended["CalibrationSearch", "candidate"] == len(search.cv_results_["candidate"])
    assert ended["Pipeline", "fit"] == 1
    # One pass over texts and fragments, one over all texts.
    assert 0 < ended["BertEncoder", "encode"] <= 200


def test_two_encoders_of_a_search_are_two_tasks(recorder):
    model = SearchEncoder(TextEncoder(letters), query_encoder=TextEncoder(letters))
    model.set_callbacks(recorder).fit(TEXTS)
    assert recorder.ended()["SearchEncoder", "encode"] == 2


class Best:
    """Log the density of the rows of each epoch, and stop after some epochs."""

    def __init__(self, n_epochs):
        self.n_epochs, self.scores = n_epochs, []

    def setup(self, estimator, context):
        self.scores.clear()

    def teardown(self, estimator, context):
        pass

    def on_fit_task_begin(self, estimator, context):
        pass

    def on_fit_task_end(self, estimator, context, *, X=None, fitted_estimator=None):
        if context.task_name == "epoch":
            self.scores.append(fitted_estimator.score(X))
            return len(self.scores) == self.n_epochs
        return False


@pytest.mark.parametrize("share", [None, 0.25])
def test_a_callback_scores_each_epoch_and_can_stop(share):
    X = np.random.default_rng(0).normal(size=(200, 6)) ** 3
    flow = NormalizingFlow(max_epochs=5, validation_fraction=share, random_state=0)
    log = Best(n_epochs=3)
    stopped = clone(flow).set_callbacks(log).fit(X)
    assert stopped.n_iter_ == len(log.scores) == 3
    whole = flow.set_params(max_epochs=3).fit(X)
    assert_array_equal(stopped.transform(X), whole.transform(X))
    if share is None:
        assert_allclose(log.scores[-1], whole.score(X), rtol=1e-12)
    else:
        assert_allclose(np.negative(log.scores), whole.validation_curve_, rtol=1e-6)


def test_scikit_learns_monitor_logs_the_density_of_epochs():
    X = np.random.default_rng(0).normal(size=(100, 4)) + 1
    monitor = callback.ScoringMonitor(scoring={"density": lambda flow, X, y: flow.score(X)})
    flow = NormalizingFlow(max_epochs=4, validation_fraction=0.2, random_state=0)
    flow.set_callbacks(monitor).fit(X)
    rows = [row for row in monitor.get_logs().data if row["task_name"] == "epoch"]
    assert_allclose([-row["density"] for row in rows], flow.validation_curve_)


def test_the_progress_bar_of_scikit_learn_counts_texts(capsys, monkeypatch):
    pytest.importorskip("rich")
    monkeypatch.setenv("COLUMNS", "100")
    bar = callback.ProgressBar(max_propagation_depth=None)
    pipeline = make_pipeline(TextEncoder(letters), NormalizingFlow(random_state=0))
    pipeline.set_callbacks(bar).fit(TEXTS)
    shown = capsys.readouterr().out
    for task in ("Pipeline - fit", "TextEncoder - fit", "NormalizingFlow - fit"):
        assert task in shown
    assert shown.count("100%") == 3
