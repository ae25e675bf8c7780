"""Score encoders on the benchmarks of semantic textual similarity."""

from collections.abc import Sequence
from os import PathLike
from typing import Any, Literal

import numpy as np
from sklearn.frozen import FrozenEstimator
from sklearn.utils import Bunch

from skcalib.base import is_fitted, progress
from skcalib.datasets import fetch_sts, load_toy_sts
from skcalib.evaluation._score_table import ScoreTable, checked_encoders
from skcalib.inputs.texts import as_texts
from skcalib.metrics import aggregate as aggregate_subsets
from skcalib.similarity.bi_encoder import BiEncoder

#: The seven benchmarks, in the order of the papers' tables.
BENCHMARKS = ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr")


def evaluate_sts(
    encoder: Any,
    tasks: str | Sequence[str] = BENCHMARKS,
    *,
    fit_on: Any = "target",
    aggregate: Literal["all", "mean", "wmean"] = "all",
    data_home: str | PathLike[str] | None = None,
    verbose: bool = False,
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
    fit_on : {"target", "train"} or texts, default="target"
        What to fit on. "target": the distinct sentences of each benchmark's test pairs, so
        the scores hold for these sentences only; the papers [1]_ [2]_ add the training and
        development sentences of STS-B and SICK-R. "train": the sentences of STS-B's training
        split, for all benchmarks. Or a list of texts, such as the papers' NLI sentences.
    aggregate : {"all", "mean", "wmean"}, default="all"
        How the subsets of STS12 to STS16 become one score, see
        `skcalib.metrics.aggregate`. "all" ranks all pairs of a benchmark together, as
        Sentence-BERT and SimCSE do [3]_. The papers of BERT-flow [1]_ and BERT-whitening
        [2]_ report "wmean" [3]_, which differs by several points.
    data_home : path-like or None, default=None
        Folder of CSV files, as in `fetch_sts`.
    verbose : bool, default=False
        Show a progress bar over encoders and benchmarks.

    Returns
    -------
    table : ScoreTable
        A row per encoder, a column per benchmark and the mean of them, "average": Spearman's
        rho times 100.

    Raises
    ------
    TypeError, ValueError
        If an argument is none of the above, or `aggregate` needs subsets that the source of
        a benchmark does not name, such as the hub.
    FileNotFoundError
        If `data_home` lacks a benchmark, before anything is encoded.

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
    encoders = checked_encoders(encoder)
    texts = checked_texts(fit_on, data_home)
    # Read all benchmarks first, so that a missing file shows before hours of work.
    tasks = [tasks] if isinstance(tasks, str) else tasks
    if not len(tasks) or aggregate not in ("all", "mean", "wmean"):
        raise ValueError(
            f"evaluate_sts got tasks={tasks!r} and aggregate={aggregate!r}; expected one "
            "benchmark or more, and 'all', 'mean' or 'wmean'."
        )
    benchmarks = {task: _load(task, data_home, aggregate) for task in tasks}
    scores = np.empty((len(encoders), len(benchmarks)))
    with progress(scores.size, unit="score", desc="evaluate", verbose=verbose) as advance:
        for i, (name, candidate) in enumerate(encoders.items()):
            fixed = FrozenEstimator(candidate) if is_fitted(candidate) else candidate
            model = BiEncoder(fixed)
            for j, (task, sts) in enumerate(benchmarks.items()):
                if texts is None:
                    model.fit(sts.data)
                elif j == 0:
                    model.fit(texts)
                similarity = model.predict(sts.data)
                scores[i, j] = 100 * aggregate_subsets(
                    sts.target, similarity, sts.subset, aggregate
                )
                advance(1, f"{name}, {task}")
    return ScoreTable(
        rows=tuple(encoders),
        columns=(*benchmarks, "average"),
        scores=np.column_stack([scores, scores.mean(axis=1)]),
    )


def checked_texts(
    fit_on: Any, data_home: str | PathLike[str] | None
) -> Sequence[str] | np.ndarray | None:
    """Texts to fit on; None for each benchmark's own."""
    if not isinstance(fit_on, str):
        return as_texts(fit_on, "fit_on")
    if fit_on == "target":
        return None
    if fit_on == "train":
        return fetch_sts("stsb", "train", data_home=data_home).data.ravel()
    raise ValueError(
        f"fit_on={fit_on!r} is unknown. Give 'target', 'train' or a list of texts. To fit on a "
        "file, read its lines into a list."
    )


def _load(task: str, data_home: str | PathLike[str] | None, aggregate: str) -> Bunch:
    if task == "toy":
        return load_toy_sts()
    sts = fetch_sts(task, data_home=data_home)
    # The hub's copies name no subsets: all three aggregations would give the same score.
    if aggregate != "all" and task in BENCHMARKS[:5] and len(np.unique(sts.subset)) == 1:
        raise ValueError(
            f"aggregate={aggregate!r} needs the subsets of {task}, but its source names none "
            f"({sts.subset[0]!r} throughout). Read it from CSV files with a column subset, see "
            "data_home, or use aggregate='all'."
        )
    return sts
