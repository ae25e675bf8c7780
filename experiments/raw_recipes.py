"""Which calibration of a language model for which use, after fits on few texts and on more.

The features are the last token with words around the text, and the mean of first and last
layer. Uses are graded similarity (Spearman's rho of the seven STS sets), questions and the
sentences that answer them (area under the ROC curve of QNLI's pairs), and groups (R-precision
of four sets). Pairs are fitted on their own texts: all, or those of 300 pairs drawn at random,
which are then scored. For groups 500 texts are fitted and 500 others scored; "n_groups" knows
their number. "value" is the mean over sets, "gain" that over raw vectors, "worst" that of the
worst set.
"""

import numpy as np
import pandas as pd
from data import DATA, LENGTH, LENGTH_WITH_TEMPLATE, STS, TEMPLATE, pairs
from measures import correlations, unit
from raw_depths import grouped, texts_of
from raw_depths import stored as stored_texts
from raw_sts import stored as stored_pairs
from sklearn.base import clone
from sklearn.metrics import roc_auc_score
from sklearn.preprocessing import FunctionTransformer

from skcalib import NormalizingFlow, Whitening

FEATURES = {
    "last token, prompt": {
        "max_length": LENGTH_WITH_TEMPLATE,
        "prompt": TEMPLATE,
        "pooling": "last",
    },
    "first_last": {"max_length": LENGTH, "layers": "first_last"},
}
GROUPED = "Banking77", "biomedical", "news", "emotions"
FEW, KEPT = 300, 128


def steps(n_groups=None):
    found = {
        "raw": FunctionTransformer(),
        "flow": NormalizingFlow(random_state=0),
        "auto": Whitening(power="auto"),
        "auto, 128": Whitening(KEPT, power="auto"),
        "many": Whitening(power="auto", n_groups="many"),
        "many, 128": Whitening(KEPT, power="auto", n_groups="many"),
        "exact, 128": Whitening(KEPT),
    }
    if n_groups is not None:
        found["n_groups"] = Whitening(power="auto", n_groups=n_groups)
    return found


def rows(encode, options):
    for feature, params in FEATURES.items():
        found = {}
        encoder = stored_pairs(encode, options, **params).fit([""])
        for use, name, both, grades in of_pairs():
            rng = np.random.default_rng(0)
            drawn = {"all": slice(None), "300 pairs": rng.permutation(len(both))[:FEW]}
            for n, some in drawn.items():
                scores = paired(encoder, both[some], grades[some], use)
                found.setdefault((use, n), {})[name] = scores
        for name in GROUPED:
            found.setdefault(("groups", "500 texts"), {})[name] = of_groups(
                encode, options, feature, name
            )
        for (use, n), of_sets in found.items():
            table = pd.DataFrame(of_sets)
            gains = table - table.loc["raw"]
            for step in table.index:
                row = {"feature": feature, "use": use, "fitted": n, "step": step}
                row["value"] = f"{table.loc[step].mean():.1f}"
                row["gain"] = f"{gains.loc[step].mean():+z.1f}"
                yield row | {"worst": f"{gains.loc[step].min():+z.1f}"}


def of_pairs():
    """Yield the use, the name, the texts and the grades of sets of pairs."""
    for name in STS:
        yield "similarity", name, *pairs(name)
    frame = pd.read_csv(DATA / "raw" / "qnli" / "qnli-dev.csv", keep_default_na=False)
    yield "answers", "QNLI", frame.iloc[:, :2].to_numpy(), frame.iloc[:, 2].to_numpy()


def paired(encoder, both, grades, use):
    """Return the score of each step, times 100, on pairs on whose texts it is fitted."""
    texts, places = np.unique(both, return_inverse=True)
    vectors, sides = encoder.transform(list(texts)), places.reshape(both.shape).T
    scores = {}
    for step, map_ in steps().items():
        units = unit(clone(map_).fit_transform(vectors))
        cosines = (units[sides[0]] * units[sides[1]]).sum(axis=1)
        by_rank = use == "similarity"
        score = (
            correlations(grades, [cosines])[0] if by_rank else roc_auc_score(grades, cosines)
        )
        scores[step] = 100 * score
    return scores


def of_groups(encode, options, feature, name):
    """Return the R-precision of each step, times 100."""
    how = {"pooling": "last, prompt"} if "prompt" in feature else {"layers": "first_last"}
    encoder = stored_texts(encode, options, **how).fit([""])
    fit_on, texts, codes = texts_of(name)
    fitted, scored = encoder.transform(list(fit_on)), encoder.transform(list(texts))
    score = grouped(scored, codes)
    return {s: score(clone(m).fit(fitted)) for s, m in steps(codes.max() + 1).items()}
