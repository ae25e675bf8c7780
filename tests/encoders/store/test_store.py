"""The store: each text through the model once, ever, and never a wrong vector."""

import pickle
import shutil
from dataclasses import replace

import numpy as np
import pytest
from counting import Counting
from numpy.testing import assert_allclose, assert_array_equal
from safetensors.torch import load_file, save_file
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from transformers import BertModel

from skcalib import BertEncoder, BiEncoder, TextEncoder, VectorStore, Whitening

POOLINGS = sorted(BertEncoder._parameter_constraints["pooling"][0].options - {"auto"})


@pytest.fixture(autouse=True)
def forget(recent):
    """Keep vectors in memory, as outside the tests; return the function that empties it."""
    recent.bound = 2**20
    return recent.clear


@pytest.fixture
def count_runs(tiny_bert, monkeypatch):
    """Count texts put through the model itself."""
    BertEncoder(tiny_bert).fit(["dog"])  # which tries some texts
    rows, run = [], BertModel.forward

    def forward(self, input_ids, position_ids=None, **options):
        packed = position_ids is not None  # into one row
        rows.append(int((position_ids == 0).sum()) if packed else len(input_ids))
        return run(self, input_ids, position_ids=position_ids, **options)

    monkeypatch.setattr(BertModel, "forward", forward)
    return rows


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize(
    ("layers", "merge"), [(1, "mean"), ("first_last", "concat"), (-1, "mean")]
)
def test_any_pooling_and_layers_are_read_back(
    tiny_bert, texts, tmp_path, count_runs, forget, pooling, layers, merge
):
    texts = [*texts, ""]
    params = {"layers": layers, "layer_merge": merge}
    rare = "last", "weighted_mean", "mean_without_first"
    first = "last" if pooling in rare else "mean"  # the first keeps the rare ones
    BertEncoder(tiny_bert, memory=tmp_path, pooling=first).fit_transform(texts)
    forget()
    encoder = BertEncoder(tiny_bert, pooling=pooling, **params)
    expected = encoder.fit_transform(texts)
    count_runs.clear()
    for _ in range(2):  # from disk, and from memory
        stored = clone(encoder).set_params(memory=tmp_path).fit_transform(texts)
        assert_allclose(stored, expected, rtol=1e-5, atol=1e-6)
    assert count_runs == []


@pytest.mark.parametrize("memory", [None, "vectors"])
def test_search_runs_each_distinct_text_once(
    tiny_bert, texts, tmp_path, monkeypatch, count_runs, forget, memory
):
    """Ever; without a store, for each hidden state and pooling."""
    monkeypatch.chdir(tmp_path)
    pairs = np.array(list(zip(texts, texts[5:] + texts[:5], strict=True)))
    y = np.arange(len(pairs)) % 5
    encoder = BertEncoder(tiny_bert, memory=memory)
    model = BiEncoder(make_pipeline(encoder, Whitening(shrinkage=0.5)))
    grid = {
        "encoder__bertencoder__pooling": ["cls", "zipf"],
        "encoder__bertencoder__layers": [-1, "last2", "first_last", (1, 2)],
        "encoder__whitening__n_components": [2, 4],
    }
    search = GridSearchCV(model, grid, cv=2, error_score="raise").fit(pairs, y)
    assert sum(count_runs) == len(set(texts)) * (1 if memory else 8)
    forget()  # as a new process would
    again = clone(search).fit(pairs, y)
    assert sum(count_runs) == len(set(texts)) * (1 if memory else 16)
    first, second = (s.cv_results_["mean_test_score"] for s in (search, again))
    assert_array_equal(second, first)


def test_store_of_some_layers_serves_those_alone(tiny_bert, texts, tmp_path):
    store = VectorStore(tmp_path, layers=(0, -1))
    encoder = BertEncoder(tiny_bert, layers="embedding_last", memory=store)
    expected = clone(encoder).set_params(memory=None).fit_transform(texts)
    assert_allclose(encoder.fit_transform(texts), expected, rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match=r"hidden states \[0, 3\] .*uses \[1\]"):
        encoder.set_params(layers=1).fit_transform(texts)
    encoder.set_params(memory=replace(store, layers=(7,)))
    with pytest.raises(ValueError, match=r"hidden states \[7\] .* its model has 0 to 3"):
        encoder.fit_transform(texts)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_a_store_of_poolings_serves_those_alone(
    tiny_bert, texts, tmp_path, count_runs, pooling
):
    store = VectorStore(tmp_path, pooling=pooling)
    served = [pooling, f"{pooling}_own"] if f"{pooling}_own" in POOLINGS else [pooling]
    for name in served:  # with special tokens and without them
        encoder = BertEncoder(tiny_bert, pooling=name)
        expected = encoder.fit_transform(texts)
        count_runs.clear()
        stored = encoder.set_params(memory=store).fit_transform(texts)
        assert_allclose(stored, expected, rtol=1e-5, atol=1e-6)
        assert sum(count_runs) == (len(set(texts)) if name == pooling else 0)
    other = "cls" if pooling.startswith("max") else "max"
    encoder.set_params(pooling=other, memory=replace(store, pooling=[pooling]))
    with pytest.raises(ValueError, match=rf"with pooling=\['{pooling}'\]; .* with '{other}'"):
        encoder.fit_transform(texts)


@pytest.mark.filterwarnings("ignore")
def test_a_text_takes_as_many_bytes_as_the_page_says(tiny_bert, tmp_path):
    texts, sizes = [f"{'dog ' * (i % 30)}{i}" for i in range(1500)], []
    for pooling in ("cls", "mean", None):  # one vector, two and six
        store = VectorStore(tmp_path / str(pooling), layers=(0,), pooling=pooling)
        encoder = BertEncoder(tiny_bert, layers=0, memory=store, pooling=pooling or "max")
        encoder.fit_transform(texts)
        sizes.append(store.n_bytes / len(texts))
    vector = 4 * 16 + 32
    assert_allclose(np.diff(sizes), [vector, 4 * vector], rtol=0.2)


@pytest.mark.parametrize(
    ("option", "values"),
    {
        "pooling": ["sum", (), ["cls", "sum"]],
        "dtype": ["int8"],
    }.items(),
)
def test_options_of_a_store_are_checked(tmp_path, option, values):
    for value in values:
        with pytest.raises(ValueError, match=f"{option}.* must be"):
            VectorStore(tmp_path, **{option: value})


def test_half_precision_on_disk_gives_the_same_every_time(tiny_bert, texts, tmp_path, forget):
    encoder = BertEncoder(tiny_bert, memory=VectorStore(tmp_path, dtype="float16"))
    first = encoder.fit_transform(texts)
    forget()
    assert_array_equal(encoder.fit_transform(texts), first)
    exact = BertEncoder(tiny_bert).fit_transform(texts)
    assert_allclose(first, exact, rtol=1e-3, atol=1e-3)
    assert not np.array_equal(first, exact)


def test_odd_texts_are_told_apart(tmp_path, forget):
    texts = ["", "\x00", "\ud800"]
    model = Counting(lambda texts: np.array([[sum(map(ord, text))] for text in texts]))
    encoder = TextEncoder(model, memory=tmp_path, name="model")
    vectors = encoder.fit_transform(texts)
    forget()
    found = encoder.transform(["", " ", "\x00", "\ud801", "\ud800"])
    assert_array_equal(found[::2], vectors)
    assert model.asked == [*texts, " ", "\ud801"]


def fill(store):
    """Write twenty blocks of fifty texts into a store; yield its size after each."""
    for i in range(20):
        encoder = TextEncoder(lambda texts: np.ones((len(texts), 1000)), memory=store)
        encoder.set_params(name="ones").fit_transform([f"{i} {j}" for j in range(50)])
        yield store.n_bytes


def test_store_tells_and_forgets_what_it_holds(tmp_path):
    store = VectorStore(tmp_path / "new")
    store.clear()
    assert (len(store), store.n_bytes) == (0, 0)
    assert not (tmp_path / "new").exists()  # looking makes nothing
    sizes = list(fill(store))
    assert (len(store), sizes[-1]) == (1000, max(sizes))
    store.clear()
    assert len(store) == 0
    assert store.n_bytes < sizes[0]  # all pages are given back


def test_store_is_a_plain_parameter(tiny_bert, texts, tmp_path):
    store = VectorStore(tmp_path, dtype="float16", layers=(0,), pooling="mean")
    encoder = BertEncoder(tiny_bert, layers=0, memory=store)
    encoder = pickle.loads(pickle.dumps(encoder)).fit(texts)
    assert encoder.transform(texts).shape == (len(texts), 16)
    assert repr(clone(encoder).memory) == repr(store)
    assert pickle.loads(pickle.dumps(encoder)).memory is None  # writes nothing elsewhere


@pytest.mark.parametrize(
    "lose",
    [
        lambda monkeypatch: shutil.rmtree("vectors"),
        lambda monkeypatch: VectorStore("vectors").clear(),
        lambda monkeypatch: monkeypatch.chdir("elsewhere"),
    ],
    ids=["removed", "cleared", "in another folder"],
)
def test_memory_hides_no_store_that_lacks_texts(tiny_bert, texts, tmp_path, monkeypatch, lose):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    encoder = BertEncoder(tiny_bert, memory="vectors").fit(texts)
    expected = [encoder.transform(texts) for _ in range(2)]
    lose(monkeypatch)
    for _ in range(2):
        assert_array_equal(encoder.transform(texts), expected[0])
        assert len(VectorStore("vectors")) == len(set(texts))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_vector_not_finite_is_neither_returned_nor_kept(tiny_bert_copy, tmp_path, dtype):
    folder, store = tiny_bert_copy(), VectorStore(tmp_path, dtype=dtype)
    tensors = load_file(folder / "model.safetensors")
    # Finite in the model; layer normalisation is made to overflow single or half precision.
    tensors["embeddings.LayerNorm.weight"] *= 3e38 if dtype == "float32" else 1e30
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    encoder = BertEncoder(folder, layers=0).fit(["cat"])
    message = rf"text '(the )?dog' is not finite.*{folder}.*dtype='float32'"
    for memory in [store, None] if dtype == "float32" else [store]:
        with pytest.raises(ValueError, match=message):
            encoder.set_params(memory=memory).transform(["the dog", "dog"])
    assert len(store) == 0
