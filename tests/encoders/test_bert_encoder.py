"""BertEncoder: the contract of a scikit-learn transformer of texts, on tiny BERTs."""

import pickle
import re
import warnings
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline, make_union
from transformers import AutoModel, AutoTokenizer
from transformers.models.bert.modeling_bert import BertLayer

from skcalib import BertEncoder, clear_caches
from skcalib.encoders.bert_encoder import backbone_of
from skcalib.encoders.model.batches import batches as batches_of
from skcalib.process.caches import VECTORS

POOLINGS = ["cls", "last", "mean", "max", "weighted_mean", "zipf"]
POOLINGS += ["mean_without_first", "mean_own", "max_own"]


@pytest.fixture(scope="module")
def reference(tiny_bert):
    """Return a function that encodes one text by the letter, in float64."""
    tokenizer = AutoTokenizer.from_pretrained(tiny_bert)
    model = AutoModel.from_pretrained(tiny_bert).double().eval()

    def encode(text, pooling="mean", layers=(-1,), merge="mean"):
        ids = tokenizer(text)["input_ids"]
        with torch.inference_mode():
            states = model(torch.tensor([ids]), output_hidden_states=True).hidden_states
        own = ~np.isin(ids, [0, 2, 3, 4])
        own |= not own.any()
        # The vocabulary: 5 special tokens, 4 characters, then words from rank 1.
        zipf = np.where(own, np.log1p(np.maximum(np.array(ids) - 8, 0)), 0)
        pool = {
            "cls": lambda h: h[0],
            "last": lambda h: h[-1],
            "mean": lambda h: h.mean(axis=0),
            "max": lambda h: h.max(axis=0),
            "mean_own": lambda h: h[own].mean(axis=0),
            "max_own": lambda h: h[own].max(axis=0),
            "weighted_mean": lambda h: np.average(h, axis=0, weights=1 + np.arange(len(h))),
            "zipf": lambda h: np.average(h, axis=0, weights=zipf if zipf.any() else own),
            "mean_without_first": lambda h: h[1:].mean(axis=0),
        }[pooling]
        vectors = [pool(states[layer][0].numpy()) for layer in layers]
        return np.concatenate(vectors) if merge == "concat" else np.mean(vectors, axis=0)

    return encode


# What it computes ------------------------------------------------------------------------


@pytest.mark.parametrize("pooling", POOLINGS)
def test_pooling_equals_the_formula(tiny_bert, texts, reference, pooling):
    texts = [*texts, "", "?!", "unheard", "cat [SEP] dog", "[SEP]", "[SEP] cat [SEP]"]
    encoder = BertEncoder(tiny_bert, pooling=pooling)
    expected = [reference(t, pooling) for t in texts]
    vectors = encoder.fit_transform(texts)
    assert vectors.dtype == np.float32
    assert_allclose(vectors, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("merge", ["mean", "concat"])
@pytest.mark.parametrize(
    ("layers", "indices"),
    [
        *((layer, (layer % 4,)) for layer in range(-4, 4)),
        ("last", (3,)),
        ("last2", (2, 3)),
        ("first_last", (1, 3)),
        ("embedding_last", (0, 3)),
        ((2, 1, 3), (2, 1, 3)),
        ([1, 2], (1, 2)),
    ],
)
def test_layers_are_merged_after_pooling(tiny_bert, texts, reference, layers, indices, merge):
    expected = [reference(t, "max", indices, merge=merge) for t in texts]
    encoder = BertEncoder(tiny_bert, pooling="max", layers=layers, layer_merge=merge)
    assert_allclose(encoder.fit_transform(texts), expected, rtol=1e-5, atol=1e-5)
    assert encoder.layers_ == indices


@pytest.mark.parametrize(("layers", "blocks"), [(0, 0), (1, 1), ((0, 2), 2), (-1, 3)])
def test_no_block_runs_beyond_the_last_layer(tiny_bert, texts, layers, blocks):
    encoder, run = BertEncoder(tiny_bert, layers=layers).fit(texts), BertLayer.forward
    with patch.object(BertLayer, "forward", autospec=True, side_effect=run) as forward:
        encoder.transform(texts[:1])
    assert forward.call_count == blocks


def test_vector_depends_on_the_text_alone(tiny_bert, texts, monkeypatch):
    encoder = BertEncoder(tiny_bert).fit(texts)
    vectors = encoder.transform(texts)
    alone = np.vstack([encoder.transform([t]) for t in texts])
    assert_allclose(alone, vectors, atol=1e-5)
    order = np.random.default_rng(0).permutation(len(texts))
    assert_allclose(encoder.transform([texts[i] for i in order]), vectors[order], atol=1e-5)
    assert_array_equal(encoder.transform(texts), vectors)  # the same call: the same bits
    assert_array_equal(vectors[-1], vectors[2])  # the same text, twice
    for name, value in (("BLOCK", 3), ("token_budget", lambda backbone: 1)):
        monkeypatch.setattr(f"skcalib.encoders.model.batches.{name}", value)
        assert_allclose(encoder.transform(texts), vectors, atol=1e-5)


@pytest.mark.parametrize("max_tokens", [1, 100, np.inf])
@pytest.mark.parametrize("longest", [9, 256])
@pytest.mark.parametrize("mixed", [np.inf, 5, 0])
def test_batches_keep_to_their_limits_and_lose_no_text(max_tokens, longest, mixed):
    lengths = np.random.default_rng(0).integers(1, longest + 1, size=2000)
    batches = list(batches_of(lengths, max_tokens=max_tokens, longest_mixed=mixed))
    assert_array_equal(np.sort(np.concatenate(batches)), np.arange(2000))
    for rows, following in zip(batches, [*batches[1:], None], strict=True):
        inside = lengths[rows]
        assert (np.diff(inside) <= 0).all()  # those of one length stand together
        assert inside[0] <= mixed or len(set(inside)) == 1
        assert inside.sum() <= max_tokens or len(rows) == 1
        if inside[0] <= mixed and following is not None:  # the next text would not have fitted
            assert inside.sum() + lengths[following[0]] > max_tokens


def test_max_length_keeps_that_many_tokens(tiny_bert):
    encoder = BertEncoder(tiny_bert, max_length=5).fit(["dog"])
    assert encoder.max_length_ == 5
    expected = encoder.transform(["dog cat dog"])  # just fits, without a word
    with pytest.warns(UserWarning, match=r"2 of 3 texts were cut off at max_length=5"):
        cut = encoder.transform(["dog cat dog river snow", "dog", "dog cat dog dog"])
    assert_allclose(cut[[0, 2]], np.repeat(expected, 2, axis=0), atol=1e-6)


@pytest.mark.parametrize("method", ["fit", "transform", "fit_transform"])
def test_warnings_come_once_and_point_at_the_users_line(tiny_bert, method):
    encoder = BertEncoder(tiny_bert, pooling="cls", layers=0)
    if method == "transform":
        encoder = BertEncoder(tiny_bert).fit(["dog"])
    with warnings.catch_warnings(record=True) as record:
        warnings.simplefilter("always")
        getattr(encoder, method)([" ".join(["dog"] * 50)])
    n_expected = {"fit": 1, "transform": 1, "fit_transform": 2}[method]
    assert [w.filename for w in record] == [__file__] * n_expected


@pytest.fixture(params=["packed weights", "plain weights"])
def weights(request, monkeypatch, loads):
    """The CPU as it is, and one that packs no weights."""
    if request.param == "plain weights":
        monkeypatch.setattr("skcalib.encoders.model.forward.pack_linears", lambda *_: False)


@pytest.mark.parametrize("memory", [False, True], ids=["plain", "store"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_is_pooled_in_float32(
    tiny_bert, texts, dtype, memory, tmp_path, weights
):
    texts = [*texts, "", "?!"]
    for pooling in POOLINGS:
        encoder = BertEncoder(tiny_bert, pooling=pooling, device="cpu")
        exact = encoder.fit_transform(texts)
        encoder.set_params(dtype=dtype, memory=tmp_path if memory else None)
        vectors = encoder.fit_transform(texts)
        assert vectors.dtype == np.float32
        cosine = np.sum(vectors * exact, axis=1)
        cosine /= np.linalg.norm(vectors, axis=1) * np.linalg.norm(exact, axis=1)
        assert 0.999 < cosine.min() < 1 - 1e-8
        # Means keep more digits than half precision has.
        rounded = torch.from_numpy(vectors).to(getattr(torch, dtype)).float().numpy()
        assert pooling in ("cls", "last", "max", "max_own") or (rounded != vectors).any()


def test_progress_is_shown_only_when_asked_for(tiny_bert, texts, capsys):
    BertEncoder(tiny_bert).fit_transform(texts)
    assert capsys.readouterr() == ("", "")
    BertEncoder(tiny_bert, verbose=True).fit_transform(texts)
    assert re.search(r"encode: 100%.*12/12", capsys.readouterr().err)


# Containers ------------------------------------------------------------------------------


# Parameters ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"pooling": "median"}, "'pooling' parameter of BertEncoder must be a str among"),
        ({"layers": 4}, r"layers=4 asks for hidden state 4; this model has 3 layers.*-4 to -1"),
        ({"layers": (0, -5)}, "asks for hidden state -5"),
        ({"layers": "last2avg"}, "two meanings: .*'last2'.*'first_last'"),
        ({"layers": "avg-last-2"}, "two meanings: .*'last2'.*'first_last'"),
        ({"layers": ()}, r"layers=\(\); expected an int, a tuple"),
        ({"layers": (0.5,)}, r"layers=\(0.5,\); expected an int"),
        ({"max_length": 2}, r"max_length=2; this model accepts 3 to 40 tokens.*2 special"),
        ({"max_length": 41}, "max_length=41; this model accepts 3 to 40"),
        ({"device": "quantum"}, "device='quantum' is unknown.*'auto'"),
    ],
)
def test_bad_parameters_are_named_and_leave_nothing_fitted(tiny_bert, params, message):
    encoder = BertEncoder(tiny_bert).set_params(**params)
    with pytest.raises(ValueError, match=message):
        encoder.fit(["dog"])
    with pytest.raises(NotFittedError):
        encoder.transform(["dog"])


def test_parameters_take_effect_at_the_next_fit(tiny_bert, other_bert, texts):
    encoder = BertEncoder(tiny_bert, layers=(0, 1), layer_merge="concat", pooling="cls")
    before = encoder.fit_transform(texts)
    encoder.set_params(layers=-1, pooling="mean")
    assert_array_equal(encoder.transform(texts), before)
    encoder = pickle.loads(pickle.dumps(encoder)).set_params(model=other_bert)
    with pytest.raises(ValueError, match=r"has fingerprint .* was fitted with .*fit again"):
        encoder.transform(texts)
    encoder.fit(texts)  # which leaves nothing of before
    assert encoder.layers_ == (2,)
    assert_array_equal(encoder.transform(texts), BertEncoder(other_bert).fit_transform(texts))
    assert list(encoder.get_feature_names_out()) == [f"bertencoder{i}" for i in range(8)]


# A scikit-learn transformer --------------------------------------------------------------


def test_models_are_loaded_once_per_process(tiny_bert, texts, loads):
    search = GridSearchCV(
        make_pipeline(BertEncoder(tiny_bert), Ridge()),
        {"bertencoder__pooling": ["cls", "mean"], "bertencoder__layers": [1, 2]},
        cv=2,
    )
    search.fit(texts, np.arange(len(texts)))
    assert loads == [Path(tiny_bert).name]


def test_column_transformer_and_feature_union(tiny_bert, texts):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"title": texts, "body": texts[::-1], "n": range(len(texts))})
    cls, mean = BertEncoder(tiny_bert, pooling="cls"), BertEncoder(Path(tiny_bert))
    both = make_column_transformer((cls, "title"), (mean, ["body"])).fit_transform(frame)
    expected = [cls.fit_transform(texts), mean.fit_transform(texts[::-1])]
    assert_array_equal(both, np.hstack(expected))
    union = make_union(cls, mean).fit(texts)
    assert_array_equal(
        union.transform(texts), np.hstack([cls.transform(texts), mean.transform(texts)])
    )
    assert len(union.get_feature_names_out()) == 32


def test_a_pickle_needs_no_gpu_and_says_so(tiny_bert, texts, monkeypatch):
    encoder = BertEncoder(tiny_bert).fit(texts)
    dumped = pickle.dumps(encoder.set_params(device="cuda"))  # as after a fit on a GPU
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    loaded = pickle.loads(dumped)
    VECTORS.clear()
    with pytest.warns(UserWarning, match=r"device='cuda' is not available.* The CPU is used"):
        found = loaded.transform(texts)
    assert_array_equal(found, loaded.set_params(device="cpu").transform(texts))
    with pytest.raises(ValueError, match="device='cuda' is not available"):
        loaded.set_params(device="cuda").fit(texts)


@contextmanager
def default_dtype(dtype):
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize(
    "setting",
    [
        *(partial(default_dtype, d) for d in (torch.float16, torch.bfloat16, torch.float64)),
        *(partial(torch.autocast, "cpu", d) for d in (torch.float16, torch.bfloat16)),
        torch.inference_mode,
        partial(torch.device, "meta"),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_settings_of_torch_change_nothing(tiny_bert, texts, setting, dtype):
    """Whether the model is loaded before or in the context that another library sets."""
    encoder = BertEncoder(tiny_bert, dtype=dtype).fit(texts)
    expected = encoder.transform(texts)
    for forget in (clear_caches, VECTORS.clear):
        forget()
        with setting():
            found = clone(encoder).fit_transform(texts)
        assert found.dtype == np.float32
        assert_array_equal(found, expected)
    module = backbone_of(encoder).module
    assert not any(weight.is_inference() for weight in module.parameters())
    clear_caches()


def test_names_of_the_papers(tiny_bert, texts):
    for name in ("first-last-avg", "first_last"):
        assert BertEncoder(tiny_bert, layers=name).fit(texts).layers_ == (1, 3)
    for paper, ours in {"CLS": "cls", "avg": "mean"}.items():
        assert BertEncoder(tiny_bert, pooling=paper).fit(texts).pooling_ == ours
