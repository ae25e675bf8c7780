"""A cosine as a sum over pairs of words: which of them make two texts similar."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.preprocessing import Normalizer
from sklearn.utils.validation import check_is_fitted

from skcalib.calibration.map import flat, linear_map
from skcalib.encoders.bert_encoder import BertEncoder, backbone_of, recipe_of
from skcalib.encoders.model.tokens import CONTINUES, SPACES, Tokens
from skcalib.encoders.recipe import POOLINGS, Recipe
from skcalib.inputs.texts import as_texts
from skcalib.inspection._displays import axes_for

if TYPE_CHECKING:
    import torch
    from matplotlib.axes import Axes

    from skcalib.encoders.model.load import Backbone

MEANS = tuple(name for name, how in POOLINGS.items() if how.token is None and not how.maximum)


class TokenSimilarityDisplay:
    """What each pair of words contributes to the cosine of two texts.

    With a pooling that is a mean, and linear steps behind it, the cosine *is* a sum over pairs
    of tokens, and nothing is approximated. The vector of a text is ``Σ_s w_s h_s``, with the
    hidden states ``h_s`` of its tokens and weights ``w_s`` whose sum is 1. A linear step makes
    it the sum of ``z_s = w_s ((h_s - m) W + b)``: the tokens share its shift and its bias by
    their weights. The cosine of two texts is ``Σ_st z_s · z'_t / (|Σ z_s| |Σ z'_t|)``.

    The hidden state of a token depends on its whole text. So a contribution says where in the
    vectors the cosine comes from, not what the cosine would be without the word.

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

    Examples
    --------
    >>> from skcalib import BertEncoder
    >>> from skcalib.inspection import TokenSimilarityDisplay
    >>> texts = ["A dog barks.", "The dog sleeps."]
    >>> encoder = BertEncoder("minilm").fit(texts)
    >>> display = TokenSimilarityDisplay.from_texts(encoder, *texts)
    >>> display.words_a
    ['[CLS]', 'a', 'dog', 'barks', '.', '[SEP]']
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
        cls, pipeline: Any, a: str, b: str, *, name: str | None = None, **kwargs: Any
    ) -> Self:
        """Explain the cosine of two texts, and draw it.

        Parameters
        ----------
        pipeline : BertEncoder or Pipeline
            Fitted. The pooling of the encoder, the first step, is a mean; the other steps are
            linear, such as `Whitening`, or scale vectors to unit length.
        a, b : str
            The texts. Tokens of the encoder's prompt are shown if it pools them.
        name : str or None, default=None
            Before the cosine in the title.
        **kwargs
            As for `plot`.

        Returns
        -------
        display : TokenSimilarityDisplay

        Raises
        ------
        TypeError
            If the first step is no `BertEncoder`, or a step is of an unknown kind.
        ValueError
            If the pooling or a step makes the cosine no such sum, or a text needs windows.
        """
        encoder, *steps = [*flat(pipeline)] or [None]
        if not isinstance(encoder, BertEncoder):
            raise TypeError(
                f"Got {pipeline!r:.80}; expected a BertEncoder or a pipeline that begins with "
                "one. Other encoders do not show the vectors of their tokens."
            )
        for step in (encoder, *steps):
            check_is_fitted(step)
        recipe, maps = recipe_of(encoder), [_map_of(step) for step in steps]
        if recipe.pooling not in MEANS:
            raise ValueError(
                f"pooling={recipe.pooling!r} is no mean over tokens, so the cosine is no sum "
                f"over pairs of tokens. Use one of {', '.join(MEANS)}."
            )
        words, terms = [], []
        for text in as_texts([a, b], "texts"):
            tokens, shares, of_tokens = _terms_of(backbone_of(encoder), recipe, text)
            for linear in maps:
                if linear is None:
                    of_tokens = _scaled(of_tokens)
                else:
                    of_tokens = (of_tokens - shares * linear.mean) @ linear.projection
                    of_tokens += shares * linear.bias
            names, word_of = _words_of(backbone_of(encoder).tokens, tokens)
            of_words = np.zeros((len(names), of_tokens.shape[1]))
            np.add.at(of_words, word_of, _scaled(of_tokens))
            words.append(names)
            terms.append(of_words)
        return cls(terms[0] @ terms[1].T, *words, name=name).plot(**kwargs)

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
        ax, **kwargs
            As for `SpectrumDisplay.plot`, and passed to matplotlib's ``imshow``.

        Returns
        -------
        display : TokenSimilarityDisplay
        """
        ax = axes_for(self, ax)
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


def _map_of(step: Any) -> Any:
    """Linear map of a step; None for one that scales vectors to unit length."""
    if isinstance(step, Normalizer) and step.norm == "l2":
        return None
    linear = linear_map(step)
    if isinstance(linear, str):
        raise ValueError(f"A cosine is no sum over pairs of tokens after {linear}.")
    return linear


def _scaled(terms: np.ndarray) -> np.ndarray:
    """Scale terms so that their sum has unit length, unless it is zero."""
    return terms / (np.linalg.norm(terms.sum(axis=0)) or 1)


def _terms_of(
    backbone: Backbone, recipe: Recipe, text: str
) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Return the pooled tokens of a text, their shares, (n, 1), and float64 terms, (n, d)."""
    from skcalib.encoders.model.pooling import Pooler  # imports torch

    windows = backbone.tokens.windows([text], recipe)
    if len(windows.ids) > 1:
        raise ValueError(
            f"The text {text!r:.60} is read in {len(windows.ids)} windows. Shorten it, or "
            "raise max_length."
        )
    ids, slots = np.array(windows.ids[0]), recipe.slots
    lengths = np.array([len(ids)])
    special = np.isin(ids, backbone.tokens.added_ids)
    zipf = backbone.tokens.zipf[ids] if POOLINGS[recipe.pooling].by_frequency else None
    where = backbone.width, backbone.device, recipe.skip
    pooler = Pooler(lengths, special, zipf, slots, *where, windows.second)
    hidden: dict[int, np.ndarray] = {}

    def keep(layer: int, states: torch.Tensor) -> None:
        kept = states[:, : recipe.truncate_dim].float().cpu().numpy()
        hidden[layer] = kept.astype(np.float64)

    backbone.forward(ids, lengths, slots.layers, keep)
    states = [hidden[layer] for layer in recipe.layers]
    merged = np.concatenate(states, axis=1) if recipe.concatenates else np.mean(states, axis=0)
    shares = pooler.token_shares[0]
    pooled = shares > 0
    terms = (shares[:, None] * merged)[pooled]
    tokens = backbone.tokens.tokenizer.convert_ids_to_tokens(ids[pooled].tolist())
    return tokens, shares[pooled, None], _scaled(terms) if recipe.normalize else terms


def _words_of(kinds: Tokens, tokens: list[str]) -> tuple[list[str], np.ndarray]:
    """Return words, special tokens among them, and the word of each token."""
    special = np.isin(kinds.tokenizer.convert_tokens_to_ids(tokens), kinds.special_ids)
    if kinds.marks_continuations:
        continues = np.array([token.startswith(CONTINUES) for token in tokens])
    else:
        continues = np.array([not token.startswith(SPACES) for token in tokens])
    continues &= ~special & np.concatenate([[False], ~special[:-1]])
    starts = np.flatnonzero(~continues)
    words = [part.tolist() for part in np.split(np.array(tokens, object), starts[1:])]
    as_text = kinds.tokenizer.convert_tokens_to_string
    return [as_text(w).strip() or "".join(w) for w in words], np.cumsum(~continues) - 1
