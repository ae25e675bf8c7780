"""Zipf's weights are log(1 + rank) of a token in a vocabulary sorted by frequency."""

import numpy as np
import pytest

from skcalib.encoders.model.zipf import zipf_weights

WORDS = ["the", "of", "and", "to", "in", "is", "man", "was"]
WORDS += ["for", "that", "by", "with", "dog", "cat", "plane", "flute"]


def test_pieces_and_characters_after_the_first_word_have_their_rank():
    weights = zipf_weights([".", *WORDS, "##s", "é", "##ing"], set())
    np.testing.assert_allclose(weights[-3:], np.log([18, 19, 20]), rtol=1e-6)


@pytest.mark.parametrize("positions", [(0, 1, 2), (0, 7, 18)])
def test_zipf_special_tokens_weigh_nothing_and_keep_their_rank(positions):
    tokens = list(WORDS)
    for i in positions:
        tokens.insert(i, f"special{i}")  # reads like a word
    weights = zipf_weights(tokens, positions)
    first = tokens.index("the")
    expected = [0 if i in positions else np.log(2 + i - first) for i in range(len(tokens))]
    np.testing.assert_allclose(weights, expected, rtol=1e-6)


@pytest.mark.parametrize(
    "mark",
    ["##{}", "Ġ{}", "▁{}", "{}</w>", "{}@@"],
    ids=["WordPiece", "byte-level BPE", "SentencePiece", "BPE", "fastBPE"],
)
def test_the_alphabet_weighs_nothing_under_the_marks_of_any_tokenizer(mark):
    alphabet = ["<s>", "</s>", "[unused1]", ".", "a", mark.format("a"), mark.format("")]
    words = [mark.format(word) for word in [*WORDS, *map(str.upper, WORDS)]]
    weights = zipf_weights([*alphabet, *words], {0})
    expected = [0] * len(alphabet) + [np.log(1 + rank) for rank in range(1, len(words) + 1)]
    np.testing.assert_allclose(weights, expected, rtol=1e-6)
    assert weights.dtype == np.float32


def test_words_in_alphabetical_order_but_for_a_few_are_refused():
    words = [f"{a}{b}" for a in "abcdefghij" for b in "abcdefghij"]
    words[40], words[41] = words[41], words[40]
    match = (
        r"vocabulary sorted by frequency.*of 103 tokens, the first whole word is number 3 and "
        r"99% of the words follow alphabetical order\. Use pooling='mean'"
    )
    with pytest.raises(ValueError, match=match):
        zipf_weights(["[PAD]", "[UNK]", "[CLS]", *words], {0, 1, 2})
    # Half of them out of order is what frequency gives.
    weights = zipf_weights(np.random.default_rng(0).permutation(words).tolist(), ())
    assert weights[-1] == pytest.approx(np.log(101))


def test_up_to_a_quarter_of_the_vocabulary_may_be_characters():
    words = [*WORDS, *map(str.upper, WORDS)]  # 32 of them
    few, many = list("abcdefghij"), list("abcdefghijk")  # 10 of 42, 11 of 43
    assert zipf_weights([*few, *words], ())[10] == pytest.approx(np.log(2))
    with pytest.raises(ValueError, match=r"first whole word is number 11 .*pooling='mean'"):
        zipf_weights([*many, *words], ())
    with pytest.raises(ValueError, match="first whole word is number 10 "):
        zipf_weights(few, ())
