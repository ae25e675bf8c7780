"""What a folder of sentence-transformers declares is what `BertEncoder` does by default."""

import json
import re

import pytest
from exported import exported
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

from skcalib import BertEncoder, Whitening

package = pytest.importorskip("sentence_transformers")

PROMPTS = {"query": "dog cat ", "passage": "the "}
TEXTS = ["the dog", "a cat and the dog", "dog", "the the cat dog " * 4]
MODELS = "sentence_transformers.models."
THEIRS = {"cls": "cls", "mean": "mean", "max": "max", "last": "lasttoken"}
THEIRS |= {"weighted_mean": "weightedmean"}
SETTINGS = "config_sentence_transformers.json"


@pytest.fixture
def declare(tiny_bert_copy):
    """Write what is declared into a model's folder."""
    folder = tiny_bert_copy()

    def declare(
        mode=None,
        default=None,
        prompts=PROMPTS,
        max_length=None,
        modules=("Transformer", "Pooling"),
        path="1_Pooling",
        **pooling,
    ):
        (folder / path).mkdir(exist_ok=True)
        pooling |= {"pooling_mode": mode} if mode else {}
        for name, content in {
            SETTINGS: {"prompts": prompts, "default_prompt_name": default},
            "sentence_bert_config.json": {"max_seq_length": max_length} if max_length else {},
            f"{path}/config.json": {"word_embedding_dimension": 32, **pooling},
            "modules.json": [
                {"idx": i, "name": str(i), "path": path if i else "", "type": MODELS + kind}
                for i, kind in enumerate(modules)
            ],
        }.items():
            (folder / name).write_text(json.dumps(content))
        return folder

    return declare


def _their_model(folder):
    return package.SentenceTransformer(str(folder), device="cpu", local_files_only=True)


def _theirs(folder, **options):
    return _their_model(folder).encode(TEXTS, **options)


def assert_equal(vectors, expected):
    assert_allclose(vectors, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("include", [True, False], ids=["pooled", "left out"])
@pytest.mark.parametrize(("ours", "theirs"), THEIRS.items(), ids=THEIRS)
def test_prompts_and_poolings_as_in_sentence_transformers(declare, ours, theirs, include):
    folder = declare(theirs, "query", include_prompt=include)
    encoder, model = BertEncoder(folder), _their_model(folder)
    assert_equal(encoder.fit_transform(TEXTS), model.encode(TEXTS))
    assert (encoder.pooling_, encoder.prompt_) == (ours, "dog cat ")
    for ours, theirs in {
        "": {"prompt": ""},
        "passage": {"prompt_name": "passage"},
        "cat cat ": {"prompt": "cat cat "},
    }.items():
        vectors = BertEncoder(folder, prompt=ours).fit_transform(TEXTS)
        assert_equal(vectors, model.encode(TEXTS, **theirs))


def test_an_e5_without_a_prompt_says_so(declare, edit_json):
    folder = declare(prompts={"query": "", "document": ""})  # as sentence-transformers saves
    BertEncoder(folder).fit(TEXTS)
    edit_json(folder / "config.json", _name_or_path="intfloat/e5-base-v2")
    message = "is an e5 by name.* Set prompt='query: ', or 'passage: '"
    with pytest.warns(UserWarning, match=message):
        BertEncoder(folder).fit(TEXTS)
    BertEncoder(folder, prompt="").fit(TEXTS)
    edit_json(folder / "config.json", _name_or_path="")
    for name in ("e5-instruct", "base5-small"):
        folder = folder.rename(folder.parent / name)
        BertEncoder(folder).fit(TEXTS)
    folder = folder.rename(folder.parent / "my_E5_small")
    with pytest.warns(UserWarning, match="my_E5_small' is an e5 by name"):
        BertEncoder(folder).fit(TEXTS)
    edit_json(folder / SETTINGS, prompts=PROMPTS)
    BertEncoder(folder).fit(TEXTS)


@pytest.mark.parametrize(("declared", "of_tokenizer"), [(8, 40), (12, 6)])
def test_max_length_is_the_declared_one(declare, edit_json, declared, of_tokenizer):
    folder = declare(max_length=declared)
    edit_json(folder / "tokenizer_config.json", model_max_length=of_tokenizer)
    encoder = BertEncoder(folder)
    with pytest.warns(UserWarning, match=f"1 of 4 texts were cut off at max_length={declared}"):
        vectors = encoder.fit_transform(TEXTS)
    assert_equal(vectors, _theirs(folder))
    if of_tokenizer < declared:
        with pytest.raises(ValueError, match="accepts 3 to 12 tokens"):
            BertEncoder(folder, max_length=13).fit(TEXTS)


@pytest.mark.parametrize(
    ("config", "pooling"),
    [
        ({}, "mean"),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "cls"),
        ({"pooling_mode_lasttoken": True}, "last"),
        ({"pooling_mode_weightedmean_tokens": True}, "weighted_mean"),
        ({"pooling_mode": ["max"]}, "max"),
    ],
)
def test_pooling_by_its_former_and_its_present_names(declare, config, pooling):
    encoder = BertEncoder(declare(**config)).fit(TEXTS)
    assert encoder.pooling_ == pooling


def test_declarations_that_cannot_be_followed_are_refused(declare):
    folder = declare(pooling_mode_cls_token=True, pooling_mode_max_tokens=True)
    message = "declares the pooling 'cls and max'; BertEncoder has only ('cls', 'mean'"
    with pytest.raises(ValueError, match=re.escape(message)):
        BertEncoder(folder).fit(TEXTS)
    BertEncoder(folder, pooling="max").fit(TEXTS)
    folder = declare(default="document")
    message = r"default prompt 'document', but has only the prompts \['pa"
    with pytest.raises(ValueError, match=message):
        BertEncoder(folder).fit(TEXTS)
    BertEncoder(folder, prompt="").fit(TEXTS)


@pytest.mark.parametrize("name", ["1_Pooling", "2_Pooling", "pool"])
def test_the_pooling_is_that_of_the_modules(declare, name):
    folder = declare("cls", path=name)
    encoder = BertEncoder(folder)
    assert_equal(encoder.fit_transform(TEXTS), _theirs(folder))
    assert encoder.pooling_ == "cls"


@pytest.mark.parametrize(
    ("modules", "declared"),
    [
        (("WeightedLayerPooling", "Pooling"), "WeightedLayerPooling, then mean"),
        (("Pooling", "Dense"), "mean, then Dense"),  # as in LaBSE and EmbeddingGemma
        (("Pooling", "Normalize"), None),
    ],
)
def test_no_module_beside_the_pooling_is_left_out_in_silence(declare, modules, declared):
    folder = declare("mean", modules=("Transformer", *modules))
    if declared:
        match = f"pooling '{declared}'; BertEncoder has only .* all of"
        with pytest.raises(ValueError, match=match):
            BertEncoder(folder).fit(TEXTS)
    encoder = BertEncoder(folder, pooling="mean" if declared else "auto")
    assert encoder.fit(TEXTS).pooling_ == "mean"


@pytest.mark.parametrize(
    ("name", "contents"),
    [
        ("modules.json", ["{}", "[1]", "[{}]", "no json", '[{"type": 1}]', "[" * 100_000]),
        ("1_Pooling/config.json", [None, "", '{"pooling_mode_cls', "{}"]),
        ("sentence_bert_config.json", ['{"max_seq_length": 1', "[]"]),
        (SETTINGS, ["", '{"prompts": {']),
    ],
)
def test_a_declaration_that_cannot_be_read_is_named(declare, name, contents):
    folder = declare("cls")
    for content in contents:
        (folder / name).unlink(missing_ok=True)
        if content is not None:
            (folder / name).write_text(content)
        with pytest.raises(ValueError, match=f"{name} is invalid"):
            BertEncoder(folder).fit(TEXTS)


def test_a_declared_length_leaves_a_token_to_the_text(declare):
    folder = declare(max_length=2)
    with pytest.raises(ValueError, match=r"max_length=2 is declared .* 3 to 40"):
        BertEncoder(folder).fit(TEXTS)
    assert BertEncoder(folder, max_length=8).fit(TEXTS[:1]).max_length_ == 8


@pytest.mark.parametrize(
    ("place", "kind"),
    [
        (0, "custom_st.Transformer"),
        (0, MODELS + "StaticEmbedding"),
        (1, MODELS + "SpladePooling"),
        (1, "custom_st.Pooling"),
    ],
)
def test_modules_of_other_code_are_refused_unless_a_pooling_is_given(declare, place, kind):
    folder = declare("cls")
    modules = json.loads((folder / "modules.json").read_text())
    modules[place]["type"] = kind
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(ValueError, match=rf"pooling '.*{kind.removeprefix(MODELS)}"):
        BertEncoder(folder).fit(TEXTS)
    assert BertEncoder(folder, pooling="mean").fit(TEXTS).pooling_ == "mean"


def test_a_model_in_a_folder_of_its_own_is_refused_by_name(declare):
    folder = declare("mean")
    modules = json.loads((folder / "modules.json").read_text())
    modules[0] |= {"path": "0_BERT", "type": f"{MODELS}BERT"}
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(ValueError, match="puts the model into the folder '0_BERT', as old"):
        BertEncoder(folder).fit(TEXTS)


@pytest.mark.parametrize("pooling", ["mean", "lasttoken"])
def test_vectors_are_cut_as_sentence_transformers_cuts_them(declare, edit_json, pooling):
    folder = declare(pooling)
    edit_json(folder / SETTINGS, truncate_dim=6)
    expected = _theirs(folder)
    if expected.shape[1] != 6:
        pytest.skip("this sentence-transformers does not read truncate_dim")
    encoder = BertEncoder(folder)
    assert_equal(encoder.fit_transform(TEXTS), expected)
    assert len(encoder.get_feature_names_out()) == 6
    for asked in (3, 16):
        vectors = clone(encoder).set_params(truncate_dim=asked).fit_transform(TEXTS)
        assert_equal(vectors, _theirs(folder, truncate_dim=asked))
        assert vectors.shape == (4, asked)
    with pytest.raises(ValueError, match=r"truncate_dim=17 exceeds the 16 dimensions.*None"):
        clone(encoder).set_params(truncate_dim=17).fit(TEXTS)
    edit_json(folder / SETTINGS, truncate_dim=17)
    assert encoder.fit_transform(TEXTS).shape == (4, 16)
    assert len(encoder.get_feature_names_out()) == 16


@pytest.mark.parametrize(
    ("file", "name", "values"),
    [
        (SETTINGS, "truncate_dim", ["x", True, 12.5]),
        (SETTINGS, "prompts", ["query: ", ["query: "]]),
        (SETTINGS, "default_prompt_name", [1]),
        ("sentence_bert_config.json", "max_seq_length", ["x"]),
    ],
)
def test_a_declaration_of_another_kind_is_refused(declare, edit_json, file, name, values):
    folder = declare("mean")
    for value in values:
        edit_json(folder / file, **{name: value})
        encoder = BertEncoder(folder)
        with pytest.raises(ValueError, match=rf"{file} is invalid \({name}=.*; expected a"):
            encoder.fit(TEXTS)
        assert not hasattr(encoder, "declared_")


@pytest.mark.parametrize("whitened", [False, True])
def test_exports_cut_as_well(declare, edit_json, words, tmp_path, whitened):
    folder = declare("mean", prompts={})
    edit_json(folder / SETTINGS, truncate_dim=6)
    texts = [" ".join(words[i::9]) for i in range(9)]
    steps = [Whitening(4, power="auto")] if whitened else []
    pipeline = make_pipeline(BertEncoder(folder), *steps).fit(texts)
    expected = pipeline.transform(texts)
    assert_equal(exported(pipeline, tmp_path).encode(texts), expected)
    assert "truncate_dim=6" in (tmp_path / "model" / "README.md").read_text()
