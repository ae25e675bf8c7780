"""A cosine as a sum over pairs of words: which of them make two texts similar."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from sklearn.preprocessing import Normalizer
from sklearn.utils.validation import check_is_fitted

from skcalib.calibration.step import flat, linear_map
from skcalib.encoders.bert_encoder import BertEncoder, backbone_of, recipe_of
from skcalib.encoders.recipe import POOLINGS
from skcalib.inspection._displays import axes_or_new

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MEANS = tuple(name for name, how in POOLINGS.items() if how.token is None and not how.maximum)


class TokenSimilarityDisplay:
    """What each pair of words contributes to the cosine of two texts.

    With a pooling that is a mean, and linear steps behind it, the cosine *is* a sum over pairs
    of tokens, and nothing is approximated. The vector of a text is ``Σ_s w_s h_s``, with the
    hidden states ``h_s`` of its tokens and their weights ``w_s``, whose sum is 1. A linear step
    subtracts m and multiplies by W, so that the vector becomes ``Σ_s w_s (h_s - m) W``: the
    shift is shared out equally over the tokens, by their weights. So is a bias. With the terms
    ``z_s`` of one text and ``z'_t`` of the other, the cosine is
    ``Σ_st z_s · z'_t / (|Σ z_s| |Σ z'_t|)``.

    Parameters
    ----------
    contributions : ndarray of shape (n_words_a, n_words_b), float64
        Of each pair of words. Their sum is the cosine.
    words_a, words_b : list of str
        The words in their order, with the special tokens that are pooled.
    name : str or None, default=None
        Before the cosine in the title.

    Attributes
    ----------
    image_ : matplotlib AxesImage
    colorbar_ : matplotlib Colorbar
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure

    Notes
    -----
    The hidden state of a token depends on its whole text. A contribution says where in the
    vectors the cosine comes from, not what the cosine would be without the word.

    Examples
    --------
    >>> from skcalib import BertEncoder
    >>> from skcalib.inspection import TokenSimilarityDisplay
    >>> texts = ["A dog barks.", "The dog sleeps."]
    >>> encoder = BertEncoder("minilm").fit(texts)
    >>> display = TokenSimilarityDisplay.from_texts(encoder, *texts)
    >>> display.words_a
    ['[CLS]', 'a', 'dog', 'barks', '.', '[SEP]']
    >>> display.contributions.shape
    (6, 6)
    >>> a, b = encoder.transform(texts)  # unit vectors
    >>> bool(abs(display.similarity - a @ b) < 1e-5)
    True
    """

    def __init__(
        self,
        contributions: np.ndarray,
        words_a: list[str],
        words_b: list[str],
        *,
        name: str | None = None,
    ) -> None:
        self.contributions = contributions
        self.words_a = words_a
        self.words_b = words_b
        self.name = name

    @classmethod
    def from_texts(
        cls,
        pipeline: Any,
        a: str,
        b: str,
        *,
        name: str | None = None,
        **kwargs: Any,
    ) -> Self:
        """Explain the cosine of two texts, and draw it.

        Parameters
        ----------
        pipeline : BertEncoder or Pipeline
            Fitted. A pipeline begins with a `BertEncoder`, whose pooling is "mean",
            "mean_sqrt_len", "mean_without_first", "weighted_mean" or "zipf". Its other steps
            are linear, such as `Whitening`, or scale vectors to unit length.
        a, b : str
            The texts. Both get the encoder's prompt, whose tokens are shown if it pools them.
            With ``overflow="cut"`` a long text has the tokens that are kept; with "windows",
            those of all windows.
        name : str or None, default=None
            Before the cosine in the title.
        **kwargs
            As for `plot`.

        Returns
        -------
        display : TokenSimilarityDisplay

        Raises
        ------
        ImportError
            If matplotlib is missing.
        TypeError
            If the first step is no `BertEncoder`, a step is of an unknown kind, or a text is no
            str.
        ValueError
            If the cosine is no such sum, because of the pooling or of a step that is not
            linear, or if a vector is zero.
        """
        for text in (a, b):
            if not isinstance(text, str):
                raise TypeError(f"Got {text!r:.60} in place of a text; pass two str.")
        first, second = _terms_of(pipeline, [a, b])
        scale = (
            np.linalg.norm(first.terms.sum(axis=0)),
            np.linalg.norm(second.terms.sum(axis=0)),
        )
        if not min(scale) > 0:
            which = a if scale[0] == 0 else b
            raise ValueError(f"The vector of {which!r:.60} is zero, so it has no cosine.")
        contributions = (first.terms / scale[0]) @ (second.terms / scale[1]).T
        return cls(contributions, first.words, second.words, name=name).plot(**kwargs)

    @property
    def similarity(self) -> float:
        """The cosine: the sum of all contributions."""
        return float(self.contributions.sum())

    @property
    def margins(self) -> tuple[np.ndarray, np.ndarray]:
        """Contributions of the words of each text, (n_words_a,) and (n_words_b,)."""
        return self.contributions.sum(axis=1), self.contributions.sum(axis=0)

    def plot(self, ax: Axes | None = None, **kwargs: Any) -> Self:
        """Draw again.

        Parameters
        ----------
        ax : matplotlib Axes or None, default=None
            Where to draw; None makes a new figure.
        **kwargs
            Passed to matplotlib's ``imshow``.

        Returns
        -------
        display : TokenSimilarityDisplay
        """
        self.ax_ = ax = axes_or_new(ax)
        self.figure_ = ax.figure
        largest = np.abs(self.contributions).max()
        limits = {} if "norm" in kwargs else {"vmin": -largest, "vmax": largest}
        style = {"cmap": "RdBu_r", **limits, **kwargs}
        self.image_ = ax.imshow(self.contributions, **style)
        rows, columns = (
            # Between dollars matplotlib would expect formulas.
            [f"{w} {v:+.2f}".replace("$", r"\$") for w, v in zip(words, values, strict=True)]
            for words, values in zip((self.words_a, self.words_b), self.margins, strict=True)
        )
        ax.set_yticks(range(len(rows)), rows)
        ax.set_xticks(range(len(columns)), columns, rotation=90)
        title = f"cosine {self.similarity:.2f}"
        ax.set_title(title if self.name is None else f"{self.name}: {title}")
        self.colorbar_ = ax.figure.colorbar(self.image_, ax=ax, label="contribution")
        return self


class _Terms(NamedTuple):
    words: list[str]
    terms: np.ndarray  # (n_words, k): their sum is the vector of the text


def _terms_of(pipeline: Any, texts: list[str]) -> list[_Terms]:
    """Words of the texts with their terms, behind all steps; raise if there are none."""
    encoder, *steps = [*flat(pipeline)] or [None]
    if not isinstance(encoder, BertEncoder):
        raise TypeError(
            f"Got {pipeline!r:.80}; expected a BertEncoder or a pipeline that begins with one. "
            "Other encoders do not show the vectors of their tokens."
        )
    for step in (encoder, *steps):
        check_is_fitted(step)
    recipe = recipe_of(encoder)
    if recipe.pooling not in MEANS:
        raise ValueError(
            f"pooling={recipe.pooling!r} is no mean over tokens, so a cosine of its vectors is "
            f"no sum over pairs of tokens. The poolings that are means: {', '.join(MEANS)}."
        )
    maps = [_map_of(step) for step in steps]
    from skcalib.inspection._token_terms import token_terms

    backbone, of_texts = backbone_of(encoder), []
    for text in texts:
        of_text = token_terms(backbone, recipe, text)
        terms, shares = of_text.terms, of_text.shares[:, None]
        for linear in maps:
            if linear is None:
                length = np.linalg.norm(terms.sum(axis=0))
                terms = terms / (length if length > 0 else 1)
            else:
                terms = (
                    terms - shares * linear.mean
                ) @ linear.projection + shares * linear.bias
        words = np.zeros((len(of_text.words), terms.shape[1]))
        np.add.at(words, of_text.word_of, terms)
        of_texts.append(_Terms(of_text.words, words))
    return of_texts


def _map_of(step: Any) -> Any:
    """Linear map of a step; None for one that scales vectors to unit length."""
    if isinstance(step, Normalizer) and step.norm == "l2":
        return None
    try:
        linear = linear_map(step)
    except TypeError:
        raise TypeError(
            f"It is not known that {step!r:.80} is linear, so a cosine after it is no sum over "
            "pairs of tokens. Use Whitening, another step with a method linear_map, or "
            "scikit-learn's PCA, TruncatedSVD, StandardScaler or Normalizer('l2')."
        ) from None
    if isinstance(linear, str):
        raise ValueError(f"A cosine is no sum over pairs of tokens after {linear}.")
    return linear
