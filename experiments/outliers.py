"""Single new texts beyond a Mahalanobis distance that 1 % and 5 % should exceed.

The percentage beyond `mahalanobis_threshold`, and beyond the 99 % quantile of the fitted texts'
own distances ("own 1 %"), in ten draws of 600 or 1,200 fitted texts.
"""

import numpy as np
from change_model import SETS, texts_of

from skcalib import Whitening

KINDS = {
    "exact": {},
    "auto": {"noise": "auto"},
    "128 axes": {"noise": "auto", "n_components": 128},
}


def rows(encode, options):
    for name in SETS:
        X = encode(texts_of(name)[0])
        for kind, params in KINDS.items():
            for n in (600, 1200):
                found = []
                for seed in range(10):
                    old, new = np.split(np.random.default_rng(seed).permutation(X), [n])
                    whitening = Whitening(**params).fit(old)
                    D, own = whitening.mahalanobis(new), whitening.mahalanobis(old)
                    asked = [whitening.mahalanobis_threshold(old, r) for r in (0.01, 0.05)]
                    found.append([np.mean(D > t) for t in (*asked, np.quantile(own, 0.99))])
                one, five, by_own = 100 * np.mean(found, axis=0)
                row = {"data": name, "whitening": kind, "fitted": n}
                yield row | {
                    "1 %": f"{one:.1f}",
                    "5 %": f"{five:.1f}",
                    "own 1 %": f"{by_own:.0f}",
                }
