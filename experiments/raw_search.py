"""What `CalibrationSearch` chooses for a language model that was not trained for similarity.

"chosen" is its choice without labels among layers, poolings and calibrations, "best" the best
of these candidates in hindsight, and "last" the mean of the last layer, by Spearman's rho of
STS-B's test pairs or by R-precision.
"""

import numpy as np
import pandas as pd
from raw_depths import KEPT, SETS, stored, task
from raw_sts import STEPS

from skcalib import CalibrationSearch, Whitening

SEARCH = {"layers": [*KEPT["layers"]], "pooling": [*KEPT["pooling"]], "n_texts": 400}
CANDIDATES = {
    "raw": STEPS["raw"],
    "mean": Whitening(power=0),
    "PCA(128)": Whitening(128, power=0),
    "whitening": STEPS["auto"],
    "strong": STEPS["many"],
}


def rows(encode, options):
    for name in options.only or SETS:
        fit_on, texts, score_of, _ = task(name)
        search = CalibrationSearch(stored(encode, options), **SEARCH).fit(list(fit_on))
        tried, found, names = pd.DataFrame(search.cv_results_), [], []
        for one in tried.itertuples():
            encoder = stored(encode, options, one.pooling, layers=one.layers).fit([""])
            step = CANDIDATES[one.candidate].fit(encoder.transform(list(fit_on)))
            found.append(score_of(encoder.transform(list(texts)))(step))
            names.append(f"{one.candidate} {one.pooling} {one.layers}")
        best = int(np.argmax(found))
        row = {"data": name}
        for what, i in (("chosen", search.best_index_), ("best", best), ("last", 0)):
            row |= {what: f"{found[i]:.1f}", f"{what} by": names[i]}
        yield row
