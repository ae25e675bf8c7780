"""A scorer without labels: how well vectors find one part of a text from another."""

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from skcalib.base import warn
from skcalib.compat import Interval, validate_parameter_constraints
from skcalib.encoders.pipelines import as_encoder, encoded
from skcalib.inputs.texts import texts_of
from skcalib.model_selection.views import FEWEST_UNITS, Views, combined

# With fewer texts than the first, scores are meaningless; with fewer than the second, close
# candidates cannot be distinguished.
FEWEST_TEXTS, FEW_TEXTS = 20, 200

CONSTRAINTS = {
    "n_texts": [Interval(Integral, FEWEST_TEXTS, None, closed="left")],
    "random_state": [Interval(Integral, 0, None, closed="left")],
    "thinned": [Interval(Real, 0, 1, closed="both")],
}


@dataclass(frozen=True)
class SelfRetrieval:
    """Scorer without labels: how well vectors find one part of a text from another.

    Two mean reciprocal ranks are measured among all texts, in both directions. "halves": a
    text's odd words must find its even words. "thinned": a copy with most words dropped must
    find its text. The score is their mean on the scale of logits.

    Parameters
    ----------
    n_texts : int, default=2000
        Largest number of texts to sample; the more there are, the harder it is to find one.
    random_state : int, default=0
        Seed of the sample and of the dropped words. A text always loses the same words, so that
        with ``BertEncoder(memory=...)`` each copy goes through the model only once.
    thinned : float, default=0.5
        Weight of the copies with words dropped, in [0, 1]. The default compares calibrations of
        one layer and pooling. Use 0 to compare layers and poolings, each calibrated: the copies
        share words with their text, and would favor the embedding layer.

    Notes
    -----
    Words are separated by spaces. In scripts without them (Chinese, Japanese, Thai, Lao,
    Khmer, Burmese, Tibetan) each character counts as a word; Korean has spaces. Texts of fewer
    than six words are left out.

    The text itself is the only right answer. If many texts ask the same thing, the score
    rewards what distinguishes them: if you have grades or classes, choose by those.

    Examples
    --------
    >>> from sklearn.model_selection import GridSearchCV
    >>> from sklearn.pipeline import make_pipeline
    >>> from skcalib import BertEncoder, BiEncoder, Whitening
    >>> from skcalib.datasets import load_toy_sts, minilm_path
    >>> from skcalib.model_selection import SelfRetrieval
    >>> texts = [text for text in load_toy_sts().data.ravel() if len(text.split()) > 5][:80]
    >>> whitening = Whitening(power="auto")
    >>> model = BiEncoder(make_pipeline(BertEncoder(minilm_path(), layers=3), whitening))
    >>> grid = {"encoder__whitening__n_components": [16, 32]}
    >>> scorer = SelfRetrieval(n_texts=40)
    >>> search = GridSearchCV(model, grid, scoring=scorer, cv=2).fit(texts)
    >>> search.cv_results_["mean_test_score"].shape
    (2,)
    """

    n_texts: int = 2000
    random_state: int = 0
    thinned: float = 0.5

    def __call__(self, estimator: Any, X: Any, y: None = None) -> float:
        """Score a fitted estimator.

        Parameters
        ----------
        estimator : BiEncoder, transformer from texts to vectors, or any encoder of texts
            Fitted; or a model's folder, or a model for `TextEncoder`, which need no fit.
            Vectors are compared by cosine.
        X : texts of shape (n_texts,) or pairs of shape (n_pairs, 2)
            At least 20 texts of six words or more; fewer than 200 give a warning.
        y : None
            Ignored.

        Returns
        -------
        score : float
            In (0, 1], the larger the better.
        """
        if isinstance(estimator, BaseEstimator):
            check_is_fitted(estimator)
        texts = texts_of(X)
        views = views_of(texts, **vars(self))
        if not isinstance(estimator, BaseEstimator):
            estimator = as_encoder(estimator).fit(views.texts)
        encoder = getattr(estimator, "encoder_", estimator)  # of a BiEncoder
        vectors = encoded(encoder, views.texts)
        halves, thinned = views.reciprocal_ranks(vectors).mean(axis=1)
        return float(combined(halves, thinned, self.thinned))


def views_of(texts: Sequence[str], required: bool = True, **params: Any) -> Views:
    """Make views of a sample of texts, by parameters of `SelfRetrieval`.

    Too few texts are refused, or give no views unless they are ``required``.
    """
    validate_parameter_constraints(CONSTRAINTS, params, "SelfRetrieval")
    of_sample = {"n_texts": params["n_texts"], "seed": params["random_state"]}
    views = Views(texts, **of_sample)
    n = len(views.sample)
    count = f"Found {n} distinct texts of {FEWEST_UNITS} words or more"
    if n < FEWEST_TEXTS:
        if not required:
            return Views([], **of_sample)
        raise ValueError(
            f"{count} among {len(texts)}; expected at least {FEWEST_TEXTS}, and {FEW_TEXTS} or "
            "more to distinguish close candidates. Give more texts, or longer ones."
        )
    if n < min(FEW_TEXTS, params["n_texts"]):
        warn(f"{count}; with fewer than {FEW_TEXTS}, close candidates cannot be distinguished.")
    return views
