"""check_served: what a server returns for the texts of an exported pipeline."""

import re

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import normalize

from skcalib import BertEncoder, NeighborSmoothing, Whitening
from skcalib.datasets import load_questions, minilm_path
from skcalib.export import check_served

pytestmark = pytest.mark.usefixtures("remembered")

TEXTS = load_questions().data[::8].tolist()
RIGHT = r"not \(13, 20\) or \(13, 384\)"


@pytest.fixture(scope="module")
def pipeline():
    return make_pipeline(
        BertEncoder(minilm_path(), prompt="question: "), Whitening(20, noise="auto")
    ).fit(TEXTS)


@pytest.fixture(scope="module")
def vectors(pipeline):
    bare = BertEncoder(minilm_path()).fit_transform(TEXTS)
    return {
        "calibrated": pipeline.transform(TEXTS),
        "raw": pipeline[0].transform(TEXTS),
        "bare": bare,
        "calibrated bare": pipeline[1].transform(bare),
        "third layer": BertEncoder(minilm_path(), layers=3).fit_transform(TEXTS),
    }


def served(pipeline, returned):
    return check_served(lambda texts: returned, pipeline, TEXTS)


def shortened(Z):
    return normalize(Z).astype(np.float16).tolist()


def broken(Z):
    return np.where(np.arange(13)[:, None] == 3, np.nan, Z)


@pytest.mark.parametrize(
    ("name", "change", "told"),
    [
        ("calibrated", np.array, "calibrated"),
        ("calibrated", shortened, "calibrated"),
        ("raw", np.array, "raw"),
        ("raw", lambda Z: 3 * Z, "raw"),
        ("bare", np.array, "raw: without the prompt 'question: '"),
        ("calibrated bare", np.array, "calibrated: without the prompt 'question: '"),
        ("calibrated", np.flipud, "other: calibrated, in another order"),
        ("raw", np.flipud, "other: raw, in another order"),
        ("calibrated", lambda Z: Z[[0] * 13], "other: up to .*, which is calibrated"),
        ("third layer", np.array, "other: up to .*, which is raw.*"),
        ("calibrated", lambda Z: Z[:, :7], rf"other: .* \(13, 7\), {RIGHT}"),
        ("calibrated", lambda Z: Z[0], rf"other: .* \(20,\), {RIGHT}"),
        ("calibrated", broken, "other: NaN or infinity in vector 3"),
    ],
)
def test_what_a_server_returns_is_told(pipeline, vectors, name, change, told):
    assert re.fullmatch(told, str(served(pipeline, change(vectors[name]))))


def test_distances_are_to_the_calibrated_vectors(pipeline, vectors):
    bare, raw = (served(pipeline, vectors[name]) for name in ("calibrated bare", "raw"))
    exact = served(pipeline, vectors["calibrated"])
    rounded = served(pipeline, shortened(vectors["calibrated"]))
    assert exact.distance < 1e-5 < rounded.distance < 0.01
    assert bare.distance > 0.05
    assert np.isnan(raw.distance)  # of another width


def test_a_smoothed_pipeline_and_an_encoder_alone(pipeline, vectors):
    smoothed = make_pipeline(*pipeline, NeighborSmoothing(3)).fit(TEXTS)
    assert check_served(smoothed.transform, smoothed, TEXTS).kind == "calibrated"
    assert check_served(pipeline.transform, smoothed, TEXTS).kind == "other"
    assert check_served(pipeline[0].transform, pipeline[0], TEXTS).kind == "calibrated"


def test_texts_must_differ(pipeline):
    for texts, n in ((["a"], 1), (["a", "b", "a"], 2)):
        with pytest.raises(ValueError, match=f"{n} of them different; expected two or more"):
            check_served(pipeline.transform, pipeline, texts)
    with pytest.raises(TypeError, match="An export needs a fitted pipeline"):
        check_served(pipeline.transform, Whitening(), TEXTS)
