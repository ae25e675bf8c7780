"""check_served: what a server returns for the texts of an exported pipeline."""

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import normalize

from skcalib import BertEncoder, NeighborSmoothing, Whitening
from skcalib.datasets import load_questions, minilm_path
from skcalib.export import check_served

TEXTS = load_questions().data[::8].tolist()


@pytest.fixture(scope="module")
def pipeline():
    return make_pipeline(
        BertEncoder(minilm_path(), prompt="question: "), Whitening(20, noise="auto")
    ).fit(TEXTS)


@pytest.fixture(scope="module")
def vectors(pipeline):
    return {
        "calibrated": pipeline.transform(TEXTS),
        "raw": pipeline[0].transform(TEXTS),
        "bare": BertEncoder(minilm_path()).fit_transform(TEXTS),
    }


def served(pipeline, returned):
    return check_served(lambda texts: returned, pipeline, TEXTS)


def test_calibrated_and_raw_vectors_are_told_apart(pipeline, vectors):
    found = served(pipeline, vectors["calibrated"])
    assert (found.kind, found.reason, str(found)) == ("calibrated", "", "calibrated")
    assert found.distance < 1e-5
    assert served(pipeline, vectors["raw"]).kind == "raw"
    assert np.isnan(served(pipeline, vectors["raw"]).distance)  # of another width


def test_servers_scale_round_and_return_lists(pipeline, vectors):
    unit = normalize(vectors["calibrated"]).astype(np.float16)
    found = served(pipeline, unit.tolist())
    assert found.kind == "calibrated"
    assert 0 < found.distance < 0.01
    assert served(pipeline, 3 * vectors["raw"]).kind == "raw"


def test_a_missing_prompt_is_named(pipeline, vectors):
    bare = {"raw": vectors["bare"], "calibrated": pipeline[1].transform(vectors["bare"])}
    for kind, returned in bare.items():
        found = served(pipeline, returned)
        assert (found.kind, found.reason) == (kind, "without the prompt 'question: '")
    assert found.distance > 0.05


def test_the_order_of_rows_is_checked(pipeline, vectors):
    for kind in ("calibrated", "raw"):
        found = served(pipeline, vectors[kind][::-1])
        assert str(found) == f"other: {kind}, in another order"
    found = served(pipeline, vectors["calibrated"][[0] * len(TEXTS)])
    assert (found.kind, found.reason[:5]) == ("other", "up to")


def test_other_vectors_have_a_reason(pipeline, vectors):
    Z = vectors["calibrated"]
    broken = Z.copy()
    broken[3, 2] = np.nan
    for returned, reason in {
        "wide": (Z[:, :7], r"the shape is (13, 7), not (13, 20) or (13, 384)"),
        "few": (Z[:-1], r"the shape is (12, 20), not (13, 20) or (13, 384)"),
        "one": (Z[0], r"the shape is (20,), not (13, 20) or (13, 384)"),
        "broken": (broken, "NaN or infinity in vector 3"),
    }.values():
        found = served(pipeline, returned)
        assert (found.kind, found.reason) == ("other", reason)
    other = BertEncoder(minilm_path(), layers=3).fit_transform(TEXTS)
    found = served(pipeline, other)
    assert found.kind == "other"
    assert found.reason.startswith("up to ")
    assert "which is raw" in found.reason


def test_a_smoothed_pipeline_and_an_encoder_alone(pipeline, vectors):
    smoothed = make_pipeline(*pipeline, NeighborSmoothing(3)).fit(TEXTS)
    assert check_served(smoothed.transform, smoothed, TEXTS).kind == "calibrated"
    assert check_served(pipeline.transform, smoothed, TEXTS).kind == "other"
    assert check_served(pipeline[0].transform, pipeline[0], TEXTS).kind == "calibrated"


def test_texts_must_differ(pipeline):
    for texts, n in ((["a"], 1), (["a", "b", "a"], 2)):
        with pytest.raises(ValueError, match=f"{n} of them different; it expects two or more"):
            check_served(pipeline.transform, pipeline, texts)
    with pytest.raises(TypeError, match="check_served needs a fitted pipeline"):
        check_served(pipeline.transform, Whitening(), TEXTS)
