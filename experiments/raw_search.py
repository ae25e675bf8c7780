"""What `CalibrationSearch` chooses for a language model that was not trained for similarity.

"chosen" is its choice without labels among nine layers and four poolings, or among prompts on
the last layer: none, the last token with words around the text, and the text twice. "default"
is ``Whitening(power="auto")`` of the mean of the last layer without a prompt, "best" the best
candidate in hindsight, by Spearman's rho of STS-B's test pairs or by R-precision.
"""

import numpy as np
from data import TEMPLATE
from raw_depths import KEPT, SETS, stored, task
from sklearn.base import clone
from sklearn.preprocessing import FunctionTransformer

from skcalib import CalibrationSearch, Whitening

TWICE = "Rewrite the sentence: {text}\nRewritten sentence: {text}"
SEARCHES = {
    "": {"layers": [*KEPT["layers"]], "pooling": [*KEPT["pooling"]]},
    ", prompts": {"layers": -1, "pooling": ["mean", "last"], "prompt": [None, TEMPLATE, TWICE]},
}
STEPS = {"raw": FunctionTransformer(), "whitening": Whitening(power="auto")}
STATE = "pooling", "layers", "prompt"
PROMPTED = ("Banking77",)  # short texts: each prompt is a pass


def rows(encode, options):
    for name in options.only or SETS:
        fit_on, texts, score_of, _ = task(name)
        for kind in SEARCHES if name in PROMPTED else [""]:
            search = CalibrationSearch(stored(encode, options), n_texts=200, **SEARCHES[kind])
            tried, found = search.fit(list(fit_on)).cv_results_, []
            for one in zip(*(tried[name] for name in (*STATE, "candidate")), strict=True):
                params = dict(zip(STATE, one, strict=False))
                encoder = stored(encode, options).set_params(**params).fit([""])
                step = clone(STEPS[one[-1]]).fit(encoder.transform(list(fit_on)))
                found.append(score_of(encoder.transform(list(texts)))(step))
            row = {"data": name + kind, "default": f"{found[1]:.1f}"}
            for what, i in (("chosen", search.best_index_), ("best", int(np.argmax(found)))):
                by = [tried[name][i] for name in (*STATE, "candidate")]
                row |= {what: f"{found[i]:.1f}", f"{what} by": " ".join(map(str, by))}
            yield row
