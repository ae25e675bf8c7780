"""Data beside ``X`` that the steps of a pipeline skip is refused."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn import config_context
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, Normalizer

from skcalib import NearestAnswer, SearchEncoder, SimilarityScale, Whitening

rng = np.random.default_rng(0)
X, OTHER = rng.normal(size=(300, 16)) + 2, rng.normal(size=(60, 16)) + 1
TEXTS = [f"question {n} of {n % 7} about {n % 11}" for n in range(200)]
ASKED = [f"other question {n}" for n in range(120)]


def spread(texts):
    return np.array([[len(text), text.count("1"), sum(map(ord, text)) % 97] for text in texts])


class Mine(SearchEncoder):
    pass


@pytest.mark.parametrize(
    ("step", "name", "data"),
    [
        (SearchEncoder(), "queries", OTHER),
        (Mine(), "queries", OTHER),
        (SimilarityScale(), "unanswerable", OTHER),
        (make_pipeline(SearchEncoder()), "searchencoder__queries", OTHER),
        (
            make_pipeline(Normalizer(), SimilarityScale()),
            "similarityscale__unanswerable",
            OTHER,
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_data_that_skips_steps_is_refused(step, name, data):
    pipeline = Pipeline([("white", Whitening()), ("last", step)])
    with pytest.raises(ValueError, match=f"behind other steps .* its {name.split('__')[-1]}"):
        pipeline.fit(X, **{f"last__{name}": data})
    inside = Pipeline([("white", Whitening()), ("search", step), ("unit", Normalizer())])
    if hasattr(step, "transform"):
        with pytest.raises(ValueError, match="behind other steps"):
            inside.fit(X, **{f"search__{name}": data})


def test_texts_and_lists_that_skip_steps_are_refused():
    lower = FunctionTransformer(lambda texts: [text.lower() for text in texts])
    pipeline = make_pipeline(lower, NearestAnswer(spread))
    for name in ("queries", "unanswerable"):
        with pytest.raises(ValueError, match=f"NearestAnswer is behind .* its {name}"):
            pipeline.fit(TEXTS, [*range(200)], **{f"nearestanswer__{name}": ASKED})


def test_a_union_that_routes_queries_past_other_steps_is_refused():
    with config_context(enable_metadata_routing=True):
        union = FeatureUnion([("search", SearchEncoder().set_fit_request(queries=True))])
        with pytest.raises(ValueError, match="behind other steps"):
            Pipeline([("white", Whitening()), ("union", union)]).fit(X, queries=OTHER)
        routed = Pipeline(
            [("white", Whitening()), ("union", union)], transform_input=["queries"]
        ).fit(X, queries=OTHER)
    white = Whitening().fit(X)
    alone = SearchEncoder().fit(white.transform(X), queries=white.transform(OTHER))
    found = routed[-1].transformer_list[0][1]
    assert_allclose(found.vectors_, alone.vectors_, atol=1e-6)


def test_what_no_step_precedes_is_accepted():
    alone = SearchEncoder().fit(X, queries=OTHER)
    first = Pipeline(
        [("none", "passthrough"), ("search", SearchEncoder()), ("n", Normalizer())]
    )
    for pipeline in (make_pipeline(SearchEncoder()), first):
        name = pipeline.steps[-1][0] if len(pipeline) == 1 else "search"
        pipeline.fit(X, **{f"{name}__queries": OTHER})
        assert_allclose(pipeline[name].vectors_, alone.vectors_, atol=1e-6)


def test_an_estimator_with_queries_of_its_own_is_accepted():
    class Own(SearchEncoder):
        def fit(self, X, y=None):
            return super().fit(X, queries=X[:50] + 0.01)

    pipeline = make_pipeline(Whitening(), Own()).fit(X)
    search = GridSearchCV(pipeline, {"own__power": [0.0]}, scoring=lambda *_: 0.0, cv=2)
    assert search.fit(X).best_estimator_[-1].n_queries_ == 50
