"""Fixtures: tiny BERTs, the real MiniLM, the STS benchmarks."""

import gc
import json
import os
import sys

# Tests never reach for a hub; models that need it must come from files at hand.
os.environ["HF_HUB_OFFLINE"] = "1"
# Files of tests run side by side, a process for each core, so that threads only get in the way.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
# Workers of dask may be slow to start; what runs in processes of its own reads this too.
os.environ["DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT"] = "300s"
os.environ["DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP"] = "300s"

import joblib
import numpy as np
import pytest
from hypothesis import HealthCheck, settings

# Hypothesis tries the same examples in every run, however slow the machine, so that a failure
# is of the change at hand. Fixtures that all examples of a test share are meant so.
settings.register_profile(
    "repeatable",
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("repeatable")

collect_ignore = ["long"]  # run by hand


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers():
    """Return how many cores this container may use: ``-n auto`` starts as many processes."""
    return joblib.cpu_count()


def pytest_collection_finish():
    """Let the garbage collector pass over modules and tests, which stay to the end."""
    gc.collect()
    gc.freeze()


WORDS = (
    *("the", "of", "and", "a", "to", "in", "is", "man", "was", "for", "on", "that", "by", "it"),
    *("with", "as", "his", "he", "from", "at", "woman", "child", "dog", "cat", "plays"),
    *("plane", "flute", "guitar", "horse", "river", "street", "house", "red", "small", "old"),
    *("young", "runs", "sits", "sleeps", "cooks", "rain", "snow", "night", "morning"),
    *("garden", "bridge", "train", "letter", "song"),
)


def make_tiny_bert(folder, *, seed=0, layers=3, width=16, words=WORDS, positions=40):
    """Save a random BERT with a frequency-sorted WordPiece vocabulary."""
    import torch
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    alphabet = [".", ",", "?", "!"]
    vocab = {token: i for i, token in enumerate([*specials, *alphabet, *words])}
    tokenizer = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token="[UNK]",
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_max_length=positions,
    ).save_pretrained(folder)
    config = BertConfig(
        vocab_size=len(vocab),
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=2,
        intermediate_size=2 * width,
        max_position_embeddings=positions,
        initializer_range=0.5,  # so that layers and tokens differ clearly
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        BertModel(config).save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="session")
def words():
    """Words that the tiny BERTs know."""
    return WORDS


@pytest.fixture(scope="session")
def make_bert():
    """Return the function that saves a random BERT."""
    return make_tiny_bert


@pytest.fixture(scope="session")
def tiny_bert(tmp_path_factory):
    """Folder of a BERT of 3 layers and 16 dimensions."""
    return make_tiny_bert(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="session")
def other_bert(tmp_path_factory):
    """Folder of a BERT of 2 layers and 8 dimensions, with other weights."""
    folder = tmp_path_factory.mktemp("models") / "other"
    return make_tiny_bert(folder, seed=1, layers=2, width=8)


@pytest.fixture(scope="session")
def tiny_bert_copy(tmp_path_factory, tiny_bert):
    """Return a function that copies the tiny BERT into a new folder."""
    import shutil

    def copy():
        return shutil.copytree(tiny_bert, tmp_path_factory.mktemp("copies") / "tiny")

    return copy


@pytest.fixture
def without_prompts(tiny_bert_copy):
    """Folder of a model whose prompts are not pooled."""
    folder = tiny_bert_copy()
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text('{"include_prompt": false}')
    return str(folder)


@pytest.fixture
def unit_bert(tiny_bert_copy):
    """Folder of a tiny BERT that ends with ``Normalize``."""
    folder = tiny_bert_copy()
    kind = "sentence_transformers.models."
    modules = [
        {"idx": i, "name": str(i), "path": f"{i}_{name}" if i else "", "type": kind + name}
        for i, name in enumerate(("Transformer", "Pooling", "Normalize"))
    ]
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode": "mean"}')
    (folder / "modules.json").write_text(json.dumps(modules))
    return folder


@pytest.fixture
def save_family(tiny_bert_copy):
    """Return a function that saves a random model of a family with the tiny vocabulary."""

    def save(family, seed=0, **params):
        import torch
        import transformers

        folder = tiny_bert_copy()
        for name in ("model.safetensors", "config.json"):
            (folder / name).unlink()
        model = getattr(transformers, f"{family}Model")
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            model(model.config_class(vocab_size=60, **params)).save_pretrained(folder)
        return str(folder)

    return save


@pytest.fixture(scope="session")
def tiny_sink_decoder(tmp_path_factory):
    """Folder of a decoder of 3 layers and 24 dimensions with an attention sink.

    As in raw language models, one coordinate of a text's first token is 1,000 in the hidden
    states before the last, no special token begins a text, padding is the token of its end, and
    the folder declares no pooling.
    """
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import GPT2Config, GPT2Model, PreTrainedTokenizerFast

    folder, end = tmp_path_factory.mktemp("models") / "sink", "<|endoftext|>"
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()  # so that no text has an unknown token
    trainer = trainers.BpeTrainer(
        special_tokens=[end], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator([" ".join(WORDS)] * 3, trainer)
    roles = dict.fromkeys(("bos_token", "eos_token", "pad_token"), end)
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_max_length=80, **roles
    ).save_pretrained(folder)
    config = GPT2Config(
        vocab_size=tokenizer.get_vocab_size(),
        n_embd=24,
        n_layer=3,
        n_head=4,
        n_positions=80,
        initializer_range=0.3,
        bos_token_id=0,
        eos_token_id=0,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = GPT2Model(config)
    model.wpe.weight.data[0, 5] = 1000
    model.save_pretrained(folder)
    return str(folder)


@pytest.fixture
def edit_json():
    """Return a function that updates entries of a JSON file."""

    def edit(path, **entries):
        content = json.loads(path.read_text())
        path.write_text(json.dumps({**content, **entries}))

    return edit


@pytest.fixture(scope="session")
def texts():
    """Twelve texts of different lengths, one of them twice."""
    rng = np.random.default_rng(0)
    lengths = [1, 3, 7, 2, 9, 4, 4, 12, 5, 3, 20]
    sentences = [" ".join(rng.choice(WORDS, size=n)) for n in lengths]
    return [*sentences, sentences[2]]


@pytest.fixture(scope="session")
def minilm():
    """Folder of the real all-MiniLM-L6-v2."""
    from skcalib.datasets import minilm_path

    try:
        return minilm_path()
    except ImportError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def sts_home():
    """Folder of the STS benchmarks."""
    folder = os.environ.get("SKCALIB_DATA")
    if not folder:
        pytest.skip("SKCALIB_DATA is not set; it names the folder of the STS benchmarks")
    return folder


@pytest.fixture(autouse=True)
def recent(monkeypatch):
    """Keep no vectors in memory, so that tests run the model; raise ``bound`` to keep some."""
    from skcalib.process.caches import VECTORS

    VECTORS.clear()
    monkeypatch.setattr(VECTORS, "bound", 0)
    return VECTORS


@pytest.fixture(scope="session")
def vectors_of_real_texts():
    """A memory that all tests of a process share, for texts of MiniLM, which is slow."""
    from skcalib.process.caches import VectorMemory

    return VectorMemory()


@pytest.fixture
def remembered(recent, monkeypatch, vectors_of_real_texts):
    """Keep vectors in memory as outside the tests, and for the next test that asks for this."""
    monkeypatch.setattr("skcalib.process.caches.VECTORS", vectors_of_real_texts)


@pytest.fixture
def interrupt():
    """Return a function that calls another and interrupts a module's n-th line in it.

    It tells whether there were as many lines.
    """

    def call(module, n, function):
        left = n

        def trace(frame, event, argument):
            nonlocal left
            if frame.f_code.co_filename != module.__file__:
                return None
            left -= event == "line"
            if not left:
                raise KeyboardInterrupt
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            function()
        except KeyboardInterrupt:
            return True
        finally:
            sys.settrace(before)
        return False

    return call


@pytest.fixture
def open_vectors():
    """Return a function that opens a store for vectors of four numbers, past any encoder."""
    from contextlib import ExitStack, closing

    from skcalib.encoders.store import Vectors

    with ExitStack() as stack:
        yield lambda store, model="model": stack.enter_context(
            closing(Vectors(store, model, 4))
        )
