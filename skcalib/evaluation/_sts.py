"""Score encoders on pairs of texts with grades of similarity, or with labels 0 and 1."""

from collections.abc import Sequence
from os import PathLike
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.utils import Bunch
from sklearn.utils.validation import check_consistent_length

from skcalib.base import is_fitted
from skcalib.datasets import fetch_sts, load_toy_sts
from skcalib.datasets._sts import sentences_of, task_name
from skcalib.evaluation._score_table import ScoreTable, named_encoders
from skcalib.inputs.texts import as_texts
from skcalib.metrics import aggregate as aggregate_subsets
from skcalib.similarity.bi_encoder import BiEncoder

#: The seven benchmarks, in the order of the papers' tables.
BENCHMARKS = ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr")
OF_LABELS = {"average precision": average_precision_score, "ROC AUC": roc_auc_score}
RESAMPLED = 200  # bootstrap samples, enough for a standard error


def evaluate_sts(
    encoder: Any,
    tasks: str | Sequence[str] = BENCHMARKS,
    *,
    fit_on: Any = "target",
    aggregate: Literal["all", "mean", "wmean"] = "all",
    data_home: str | PathLike[str] | None = None,
) -> ScoreTable:
    """Score encoders on the benchmarks of semantic textual similarity.

    The score is Spearman's rho of the cosines of test pairs with human judgment.

    Parameters
    ----------
    encoder : estimator, any encoder of texts, or mapping of str to them
        Transformer from texts to vectors, such as a pipeline of `BertEncoder` and `Whitening`;
        or a model's folder, an object with a method ``encode``, or a function, see
        `TextEncoder`; or several by the name of their row. A fitted one, such as the
        ``best_estimator_`` of a search, keeps its fit; others are cloned and fitted.
    tasks : str or sequence of str, default=all seven
        "sts12" to "sts16", "stsb", "sickr", as in `fetch_sts`, and "toy" for
        `load_toy_sts`.
    fit_on : {"target", "train", "all"} or texts, default="target"
        What to fit on. "target": the sentences of each benchmark, as in the papers [1]_ [2]_;
        of STS-B and SICK-R also those of the training and development pairs that are at hand.
        So the scores hold for these sentences only. "train": the sentences of STS-B's training
        split, for all benchmarks. "all": the sentences of all `tasks` together. Or a list of
        texts, such as the papers' NLI sentences, see `load_pairs`.
    aggregate : {"all", "mean", "wmean"}, default="all"
        How the subsets of STS12 to STS16 become one score, see
        `skcalib.metrics.aggregate`. "all" ranks all pairs of a benchmark together, as
        Sentence-BERT and SimCSE do. The papers report "wmean" [3]_, which differs by several
        points.
    data_home : path-like or None, default=None
        Folder of CSV files, as in `fetch_sts`.

    Returns
    -------
    table : ScoreTable
        A row per encoder, a column per benchmark and the mean of them, "average": Spearman's
        rho times 100.

    References
    ----------
    .. [1] Li et al. (2020), "On the Sentence Embeddings from Pre-trained Language Models",
           EMNLP, arXiv:2011.05864.
    .. [2] Su et al. (2021), "Whitening Sentence Representations for Better Semantics and
           Faster Retrieval", arXiv:2103.15316.
    .. [3] Gao, Yao & Chen (2021), "SimCSE", EMNLP, arXiv:2104.08821, appendix B; its authors
           in https://github.com/princeton-nlp/SimCSE/issues/4.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from skcalib import BertEncoder, Whitening
    >>> from skcalib.datasets import minilm_path
    >>> from skcalib.evaluation import evaluate_sts
    >>> encoder = BertEncoder(minilm_path(), layers=0)
    >>> whitened = make_pipeline(encoder, Whitening(power="auto"))
    >>> table = evaluate_sts({"raw": encoder, "whitening": whitened}, "toy")
    >>> table.rows, table.columns
    (('raw', 'whitening'), ('toy', 'average'))
    >>> before, after = table.scores[:, -1]
    >>> bool(after > before)
    True
    """
    encoders = named_encoders(encoder)
    # Read all benchmarks first, so that a missing file shows before hours of work.
    tasks = [tasks] if isinstance(tasks, str) else tasks
    if not len(tasks) or aggregate not in ("all", "mean", "wmean"):
        raise ValueError(
            f"evaluate_sts got tasks={tasks!r} and aggregate={aggregate!r}; expected one "
            "benchmark or more, and 'all', 'mean' or 'wmean'."
        )
    benchmarks = {task: _load(task, data_home, aggregate) for task in tasks}
    texts = _texts_by_task(fit_on, list(benchmarks), data_home)
    scores = np.empty((len(encoders), len(benchmarks)))
    for i, candidate in enumerate(encoders.values()):
        model, seen = _bi_encoder(candidate), None
        for j, (task, sts) in enumerate(benchmarks.items()):
            if texts[task] is not seen:
                model.fit(seen := texts[task])
            similarity = model.predict(sts.data)
            score = aggregate_subsets(sts.target, similarity, sts.subset, aggregate)
            scores[i, j] = 100 * score
    return ScoreTable(
        rows=tuple(encoders),
        columns=(*benchmarks, "average"),
        scores=np.column_stack([scores, scores.mean(axis=1)]),
    )


def evaluate_pairs(
    encoder: Any, pairs: Any, labels: ArrayLike, *, fit_on: Any = None
) -> ScoreTable:
    """Score encoders on pairs of texts with labels 0 and 1, such as QNLI, MRPC and QQP.

    Parameters
    ----------
    encoder : estimator, any encoder of texts, or mapping of str to them
        As in `evaluate_sts`.
    pairs : pairs of shape (n_pairs, 2)
        A list of pairs, an array or a frame, see `load_pairs`.
    labels : array-like of shape (n_pairs,)
        1 for pairs that belong together, 0 for others.
    fit_on : texts or None, default=None
        Texts to fit on; None uses the texts of the pairs.

    Returns
    -------
    table : ScoreTable
        A row per encoder, times 100: the average precision of the pairs, ranked by cosine, and
        the area under their ROC curve, by which BERT-flow scores question answering. The 95 %
        intervals are normal, with the standard errors of a bootstrap of pairs, which assumes
        that pairs are independent.

    Examples
    --------
    >>> from skcalib import BertEncoder
    >>> from skcalib.evaluation import evaluate_pairs
    >>> pairs = [("Who sings?", "A woman sings."), ("Who sings?", "It rains."),
    ...          ("Is it wet?", "It rains."), ("Is it wet?", "A woman sings.")]
    >>> print(evaluate_pairs(BertEncoder("minilm"), pairs, [1, 0, 1, 0]).scores)
    [[100. 100.]]
    """
    encoders = named_encoders(encoder)
    texts = pairs if fit_on is None else as_texts(fit_on, "fit_on")
    y = np.asarray(labels)
    if {*np.unique(y).tolist()} != {0, 1}:
        raise ValueError(f"labels has {np.unique(y)[:5]}; expected 0 and 1, and both of them.")
    check_consistent_length(pairs, y)
    cosines = [_bi_encoder(one).fit(texts).predict(pairs) for one in encoders.values()]

    def scores_of(weights: np.ndarray | None) -> np.ndarray:
        measures = OF_LABELS.values()
        return 100 * np.array(
            [[score(y, row, sample_weight=weights) for score in measures] for row in cosines]
        )

    drawn, rng = np.empty((RESAMPLED, len(y))), np.random.default_rng(0)
    for label in (0, 1):
        n = np.sum(y == label)
        drawn[:, y == label] = rng.multinomial(n, np.full(n, 1 / n), size=RESAMPLED)
    scores, resampled = scores_of(None), np.array([scores_of(weights) for weights in drawn])
    errors = 1.96 * (resampled - resampled[:, :1]).std(axis=0)
    differences = scores - scores[0]
    intervals = np.stack([differences - errors, differences + errors], axis=-1)
    first = " and ".join(f"±{error:.1f}" for error in 1.96 * resampled[:, 0].std(axis=0))
    note = f"{len(y)} pairs, {np.sum(y)} with label 1. The first row's intervals are {first}."
    return ScoreTable(tuple(encoders), tuple(OF_LABELS), scores, intervals, note)


def _bi_encoder(encoder: Any) -> BiEncoder:
    """Return a model of pairs, in which a fitted encoder keeps its fit."""
    return BiEncoder(FrozenEstimator(encoder) if is_fitted(encoder) else encoder)


def _texts_by_task(
    fit_on: Any, tasks: list[str], data_home: str | PathLike[str] | None
) -> dict[str, Any]:
    """Return the texts to fit on for each benchmark, one object where they are the same."""
    if not isinstance(fit_on, str):
        return dict.fromkeys(tasks, as_texts(fit_on, "fit_on"))
    if fit_on == "train":
        train = fetch_sts("stsb", "train", data_home=data_home)
        return dict.fromkeys(tasks, train.data.ravel())
    if fit_on not in ("target", "all"):
        raise ValueError(
            f"fit_on={fit_on!r} is unknown. Give 'target', 'train', 'all' or a list of texts. "
            "To fit on a file, read its lines into a list."
        )
    texts = {task: sentences_of(task, data_home) for task in tasks}
    if fit_on == "target":
        return texts
    return dict.fromkeys(tasks, np.concatenate([*texts.values()]))


def _load(task: str, data_home: str | PathLike[str] | None, aggregate: str) -> Bunch:
    if task == "toy":
        return load_toy_sts()
    sts = fetch_sts(task, data_home=data_home)
    # The hub's copies name no subsets: all three aggregations would give the same score.
    has_parts = task_name(task) in BENCHMARKS[:5]
    if aggregate != "all" and has_parts and len(np.unique(sts.subset)) == 1:
        raise ValueError(
            f"aggregate={aggregate!r} needs the subsets of {task}, but its source names none "
            f"({sts.subset[0]!r} throughout). Read it from CSV files with a column subset, see "
            "data_home, or use aggregate='all'."
        )
    return sts
