"""CalibrationSearch: layer, pooling, prompt and calibration, chosen without labels."""

from collections.abc import Sequence
from numbers import Integral
from typing import Any, NamedTuple, Self

from sklearn.base import clone
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from skcalib.base import CalibratorTags
from skcalib.calibration.neighbors import NeighborSmoothing
from skcalib.calibration.whitening import Whitening
from skcalib.callbacks import fit_task, part_task
from skcalib.compat import Interval, StrOptions
from skcalib.inputs.texts import TextTransformer, distinct_texts
from skcalib.model_selection.encoders import quiet, states_of
from skcalib.model_selection.scores import Candidate, Scored, choose, results_of, scored
from skcalib.model_selection.self_retrieval import FEWEST_TEXTS, views_of
from skcalib.model_selection.views import Views, near_duplicates

RAW = "raw"  # name of vectors as they are


class Task(NamedTuple):
    """The default calibration of a task, since self-retrieval cannot judge it."""

    name: str
    calibrator: Whitening
    smooths: bool = False


# docs/tuning.md has the measurements for this table.
TASKS: dict[str | None, Task] = {
    None: Task("whitening", Whitening(power="auto")),
    "similarity": Task("strong", Whitening(power="auto", n_groups="many")),
    "duplicates": Task("mean", Whitening(power=0)),
    "topics": Task("whitening", Whitening(power="auto"), smooths=True),
}


class CalibrationSearch(TextTransformer):
    """Choose layer, pooling, prompt and calibration of an encoder from texts without labels.

    A transformer from texts to vectors, which are those of the chosen pipeline. The encoder
    stays as it is given unless another candidate is better, beyond chance, by both kinds of
    `SelfRetrieval`: halves of texts prefer late layers, and copies with words dropped early
    ones, so that either kind alone would choose layers that lose much.

    As it is given, an encoder is calibrated by ``Whitening(power="auto")`` if its vectors were
    not trained for similarity, as those of a language model, and not calibrated otherwise.

    Parameters
    ----------
    encoder : str, path-like, BertEncoder, or any encoder of texts
        A model as in `BertEncoder`, or a `BertEncoder`, whose other parameters all candidates
        share. For any other encoder, see `TextEncoder`, only the calibration is chosen. It is
        cloned and fitted, except in a ``FrozenEstimator``.
    task : {"similarity", "duplicates", "topics"} or None, default=None
        What you look for, which determines the calibration. "similarity", how similar two texts
        are, whitens by ``Whitening(power="auto", n_groups="many")``. "duplicates", the same
        text or thing again, subtracts the mean, since details that distinguish texts lie in
        weak directions. "topics", all texts about one thing (topics, intents, classes,
        clusters), whitens for `n_groups` and adds `NeighborSmoothing`.
    candidates : list of (str, transformer), default=None
        More calibrators to try, such as ``[("pca", PCA(64))]``. The name "whitening" replaces
        the default without a task.
    n_groups : int or None, default=None
        Approximate number of groups that the vectors should distinguish, see `Whitening`; texts
        do not reveal it. If given, the vectors are always whitened. It needs the task "topics"
        or None.
    pooling : str, list of str, or None, default=None
        Poolings to try. None keeps the one that the folder declares; if it declares none, or
        `layers` is given, it tries "mean", "cls" (for a decoder "last" and
        "mean_without_first"), "max", and "zipf" if the vocabulary is sorted by frequency.
    layers : int, str, list of them, or None, default=None
        Layers to try, each as in `BertEncoder`: a tuple or a name such as "first_last" merges
        several. None keeps that of the encoder if the folder declares its pooling and `pooling`
        is None, and tries all otherwise.
    prompt : str, list of (str or None), or None, default=None
        Prompts to try, each as in `BertEncoder` and in a pass of its own through the model; the
        first stays unless another is better. None keeps that of the encoder.
    n_texts : int, default=2000
        Largest number of texts to compare candidates on.
    random_state : int, default=0
        Seed of sample, views and bootstrap.

    Attributes
    ----------
    best_estimator_ : sklearn.pipeline.Pipeline
        The chosen pipeline, fitted on all texts: steps "encode"; "calibrate", the chosen
        calibrator or "passthrough"; and "smooth", for topics.
    best_index_ : int
        Its row in `cv_results_`.
    cv_results_ : dict of arrays of shape (n_candidates,)
        A row for each candidate with each pooling, layer and prompt, for ``pandas.DataFrame``.
        The first is the encoder as it is given, without a calibration. "pooling", "layers",
        "prompt", "candidate" and "calibrator" describe it. "halves" and "thinned" are the two
        kinds of `SelfRetrieval`. "halves_lead" is the lead over the encoder as it is given,
        with its default calibration, and "halves_low" and "halves_high" are the ends of its
        simultaneous 95 % interval; so for "thinned". If there is nothing to choose, the only
        row has NaN for these.
    reason_ : str
        Why the candidate was chosen, in words.
    n_texts_ : int
        Number of texts that gave the scores, 0 if there was nothing to choose.

    See Also
    --------
    skcalib.model_selection.SelfRetrieval : The score, for a grid search over any parameters.

    Notes
    -----
    The search encodes five fragments of each of up to `n_texts` texts, which an API charges
    for. A `BertEncoder` or `TextEncoder` with ``memory`` encodes each only once.

    Texts that share most of their words are one piece of evidence. Of several candidates that
    are better, the one is chosen whose smaller lead of both kinds is the largest.

    The score does not measure whether texts of one topic are close, nor how many dimensions to
    keep. If you have labels, grades or judged queries, compare by `evaluate_labeled`,
    `BiEncoder.score` or `evaluate_retrieval`.

    Examples
    --------
    >>> from skcalib import CalibrationSearch
    >>> from skcalib.datasets import load_toy_sts
    >>> sentences = load_toy_sts().data.ravel()[:100]
    >>> search = CalibrationSearch("minilm", layers=[0, 6], pooling="mean", n_texts=50)
    >>> search = search.fit(sentences)
    >>> search.best_estimator_["encode"].layers_
    (6,)
    >>> len(search.transform(["A new sentence."]))
    1
    """

    _parameter_constraints = {
        "encoder": "no_validation",  # `as_encoder` checks it
        "task": [StrOptions({name for name in TASKS if name}), None],
        "candidates": [list, tuple, None],
        "n_groups": [Interval(Integral, 2, None, closed="left"), None],
        "pooling": "no_validation",  # `BertEncoder` checks these three
        "layers": "no_validation",
        "prompt": "no_validation",
        "n_texts": [Interval(Integral, FEWEST_TEXTS, None, closed="left")],
        "random_state": [Interval(Integral, 0, None, closed="left")],
    }

    def __init__(
        self,
        encoder: Any,
        *,
        task: str | None = None,
        candidates: Sequence[tuple[str, Any]] | None = None,
        n_groups: int | None = None,
        pooling: str | Sequence[str] | None = None,
        layers: int | str | Sequence[Any] | None = None,
        prompt: str | Sequence[str | None] | None = None,
        n_texts: int = 2000,
        random_state: int = 0,
    ):
        self.encoder = encoder
        self.task = task
        self.candidates = candidates
        self.n_groups = n_groups
        self.pooling = pooling
        self.layers = layers
        self.prompt = prompt
        self.n_texts = n_texts
        self.random_state = random_state

    @fit_task(prefer_skip_nested_validation=False, n_subtasks=3)
    def fit(self, X: Any, y: None = None) -> Self:
        """Choose, and fit the chosen pipeline on all texts.

        Parameters
        ----------
        X : texts of shape (n_texts,), or pairs of shape (n_pairs, 2)
            Texts of the kind that you will compare. Repeated texts count once.
        y : None
            Ignored, as the labels that a pipeline passes.

        Returns
        -------
        self : CalibrationSearch

        Raises
        ------
        OSError
            If there is no such model.
        ValueError
            If nothing determines the calibration and fewer than 20 distinct texts have six
            words, or the model cannot distinguish the texts.
        """
        texts, candidates = distinct_texts(X), self._candidates()
        determined_by = "" if self.n_groups is None else f"n_groups={self.n_groups}"
        if self.task is not None:
            determined_by = f"task={self.task!r}"
        # Too few texts are refused before any work.
        sample = [] if determined_by else self._sample(texts)
        encoders = states_of(self.encoder, self.pooling, self.layers, self.prompt)
        has_choice = len(encoders.states) > 1 or len(candidates) > 2
        if determined_by and has_choice:
            sample = self._sample(texts, required=False)
        views = {"n_texts": self.n_texts, "seed": self.random_state}
        halves = [Views(sample[i::2], **views) for i in (0, 1)]
        with encoders.searching([*sample, *halves[0].texts, *halves[1].texts]):
            if sample:
                with quiet():
                    rows = scored(encoders, halves, candidates)
                alike = near_duplicates([*halves[0].sample, *halves[1].sample])
                chosen, reason = choose(rows, alike, self.random_state, determined_by)
            else:
                rows = [chosen := Scored(encoders.states[0], candidates[1])]
                why = "too few texts have six words" if has_choice else "there is nothing else"
                reason = f"{chosen} follows from {determined_by}; {why} to compare."
            encoder = encoders.at(chosen.state, texts)
            best = self._pipeline(encoder, chosen.candidate.calibrator)
            with part_task("fit-best", best):
                best.fit(texts)
        encoders.finish(encoder)
        self.best_estimator_ = best
        self.best_index_, self.cv_results_ = rows.index(chosen), results_of(rows)
        self.reason_, self.n_texts_ = reason, len(sample)
        with quiet():
            self._n_features_out = self.best_estimator_.transform(texts[:1]).shape[1]
        return self

    def transform(self, X: Any) -> Any:
        """Encode and calibrate texts by the chosen pipeline.

        Parameters
        ----------
        X : texts of shape (n_texts,)

        Returns
        -------
        vectors : ndarray of shape (n_texts, n_features), float32 or float64
        """
        check_is_fitted(self)
        return self.best_estimator_.transform(X)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags = CalibratorTags(preserves_dtype=[], calibrates=True)
        return tags

    def _candidates(self) -> list[Candidate]:
        """Return raw vectors, the default calibration, and those of the user."""
        if self.n_groups is not None and self.task not in (None, "topics"):
            raise ValueError(
                f"CalibrationSearch got n_groups={self.n_groups} with task={self.task!r}; a "
                'number of groups needs task="topics", or None. Leave out one of them.'
            )
        check_candidates(self.candidates)
        name, calibrator, _ = TASKS[self.task]
        if self.n_groups is not None:
            calibrator = clone(calibrator).set_params(n_groups=self.n_groups)
        named = {RAW: "passthrough", name: calibrator} | dict(self.candidates or [])
        return [Candidate(*item) for item in named.items()]

    def _sample(self, texts: list[str], required: bool = True) -> list[str]:
        """Texts to compare candidates on; if there are too few, an error, or none."""
        params = {"n_texts": self.n_texts, "random_state": self.random_state}
        return views_of(texts, required, **params).sample

    def _pipeline(self, encoder: Any, calibrator: Any) -> Pipeline:
        """Return the pipeline to fit."""
        steps = [("encode", encoder), ("calibrate", clone(calibrator, safe=False))]
        if TASKS[self.task].smooths:
            steps.append(("smooth", NeighborSmoothing()))
        return Pipeline(steps)


def check_candidates(candidates: Any) -> None:
    """Raise an error unless these are pairs of a name and a transformer of vectors."""
    names: set[str] = set()
    for entry in candidates or []:
        is_pair = isinstance(entry, list | tuple) and len(entry) == 2
        name, calibrator = entry if is_pair else (None, None)
        is_step = hasattr(calibrator, "fit") and hasattr(calibrator, "transform")
        if not (isinstance(name, str) and is_step) or isinstance(calibrator, type):
            raise TypeError(
                f"candidates has {entry!r:.80}; expected pairs of a name and a transformer of "
                'vectors, such as ("pca", PCA(64)).'
            )
        if name in {RAW, *names}:
            raise ValueError(
                f"candidates has the name {name!r}, which another candidate has. Choose names "
                f"that differ from each other and from {RAW!r}, that of vectors as they are."
            )
        names.add(name)
