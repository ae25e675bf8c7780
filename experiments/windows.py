"""Long texts cut off, read whole in windows, and each window kept apart: nDCG@10 on Cranfield.

"cut" keeps the beginning of each abstract, "windows" reads it whole and joins the windows'
vectors, "apart" keeps a vector of each window, and an abstract is as near to a query as its
nearest window. "whitened" follows each by a ``Whitening(noise="auto")`` that was fitted on the
same vectors. "tokens" go through the model for each abstract, "vectors" are kept of it, both in
the mean; "longer" is the percentage of abstracts that are longer than the limit.
"""

import numpy as np
from data import cranfield
from measures import ndcg, unit
from transformers import AutoTokenizer

from skcalib import Whitening
from skcalib.datasets import minilm_path

LIMITS = 64, 128


def windows_of(text, tokenizer, room):
    """Windows of a text of at most so many tokens, as texts."""
    offsets = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    offsets = offsets["offset_mapping"]
    parts = [offsets[i : i + room] for i in range(0, len(offsets), room)]
    return [text[part[0][0] : part[-1][1]] for part in parts]


def rows(encode, options):
    texts, queries, grades = cranfield()
    Q, bert = encode(queries), encode.bert(documents=True)
    tokenizer = AutoTokenizer.from_pretrained(
        minilm_path() if bert.model == "minilm" else bert.model
    )
    n_tokens = np.array([len(tokenizer(bert.prompt + text).input_ids) for text in texts])
    added = len(tokenizer(bert.prompt).input_ids)
    for limit in map(int, options.only or LIMITS):
        for how in ("cut", "windows", "apart"):
            D, of_text, tokens = texts, np.arange(len(texts)), np.minimum(n_tokens, limit)
            if how == "apart":
                parts = [windows_of(text, tokenizer, limit - added) for text in texts]
                of_text = np.repeat(of_text, [len(some) for some in parts])
                D = [part for some in parts for part in some]
            if how != "cut":
                more = np.ceil(np.maximum(n_tokens - limit, 0) / (limit - added))
                tokens = n_tokens + added * more
            overflow = "windows" if how == "windows" else "cut"
            V = encode(D, documents=True, max_length=limit, overflow=overflow)
            row = {
                "limit": limit,
                "overflow": how,
                "longer, %": f"{100 * np.mean(n_tokens > limit):.1f}",
                "tokens": f"{tokens.mean():.1f}",
                "vectors": f"{len(V) / len(texts):.1f}",
            }
            whitening = Whitening(noise="auto").fit(V)
            for step, map_ in (("raw", np.asarray), ("whitened", whitening.transform)):
                nearest = np.full(grades.shape, -np.inf)
                np.maximum.at(nearest.T, of_text, unit(map_(V)) @ unit(map_(Q)).T)
                row[f"nDCG@10, {step}"] = f"{100 * ndcg(nearest, grades).mean():.1f}"
            yield row
