"""Callbacks of scikit-learn follow fits from the outside in."""

from collections import Counter

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline

from skcalib import BertEncoder, BiEncoder, Whitening

pytest.importorskip("sklearn.callback", reason="scikit-learn has callbacks from 1.9 on")


class Recorder:
    """A callback that notes which tasks of which estimators begin and end."""

    max_propagation_depth = None

    def __init__(self):
        self.begun, self.ended, self.torn_down = [], [], 0

    def setup(self, estimator, context):
        pass

    def on_fit_task_begin(self, estimator, context):
        self.begun.append((type(estimator).__name__, context.parent is None))

    def on_fit_task_end(self, estimator, context, *, fitted_estimator):
        self.ended.append((type(estimator).__name__, context.parent is None))

    def teardown(self, estimator, context):
        self.torn_down += 1


def test_callbacks_reach_every_estimator_of_a_model(tiny_bert, texts):
    recorder = Recorder()
    model = BiEncoder(make_pipeline(BertEncoder(tiny_bert), Whitening(shrinkage=0.5)))
    model.set_callbacks(recorder).fit(texts)
    names = Counter(name for name, _ in recorder.ended)
    # The eleven distinct texts are followed in hundredths.
    assert names == {"BertEncoder": 101, "Whitening": 1, "Pipeline": 1, "BiEncoder": 1}
    assert sorted(recorder.begun) == sorted(recorder.ended)
    assert recorder.ended[-1] == ("BiEncoder", True)
    assert recorder.torn_down == 1
    assert not hasattr(model.encoder_, "_skl_callbacks")


@pytest.mark.parametrize("as_input", [list, iter], ids=["list", "iterator"])
def test_watching_an_encoder_changes_nothing(tiny_bert, texts, as_input):
    recorder = Recorder()
    encoder = BertEncoder(tiny_bert).set_callbacks(recorder)
    vectors = encoder.fit_transform(as_input(texts))
    np.testing.assert_array_equal(vectors, BertEncoder(tiny_bert).fit_transform(texts))
    # Nobody knows what a hundredth of an iterator is.
    assert len(recorder.ended) == (101 if as_input is list else 1)
    assert recorder.torn_down == 1


def test_a_failed_fit_tears_callbacks_down(tiny_bert, texts):
    recorder = Recorder()
    with pytest.raises(ValueError, match="asks for hidden state 9"):
        BertEncoder(tiny_bert, layers=9).set_callbacks(recorder).fit(texts)
    assert recorder.torn_down == 1
    assert recorder.ended == []
