"""evaluate_retrieval: the measures of trec_eval, on collections in BEIR's layout."""

import json
import warnings
from fractions import Fraction

import numpy as np
import pytest
from lookup import Lookup
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skcalib import SearchEncoder, TextEncoder
from skcalib.evaluation import evaluate_retrieval

# The tiny BERT knows fifty words.
pytestmark = pytest.mark.filterwarnings("ignore:.*unknown to this model")

HEADER = "query-id\tcorpus-id\tscore"


def write(folder, documents, queries, qrels, split="test"):
    """Write a collection; its qrels are triples."""
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    for name, texts in (("corpus", documents), ("queries", queries)):
        lines = [json.dumps({"_id": key, "text": text}) for key, text in texts.items()]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    lines = [HEADER, *("\t".join(map(str, triple)) for triple in qrels)]
    (folder / "qrels" / f"{split}.tsv").write_text("\n".join(lines) + "\n")
    return folder


def by_angle(degrees):
    """Vectors of texts in a plane."""
    radians = {text: np.deg2rad(angle) for text, angle in degrees.items()}
    return {text: (np.cos(a), np.sin(a)) for text, a in radians.items()}


@pytest.fixture
def small(tmp_path):
    """Four documents at rising angles from the one query, and a query without judgment."""
    documents = {"a": "first", "b": "second", "c": "third", "d": "fourth"}
    queries = {"q": "question", "r": "unjudged"}
    angles = {"question": 0, "first": 10, "second": 20, "third": 30, "fourth": 40}
    qrels = [("q", "b", 2), ("q", "d", 1), ("q", "a", 0), ("q", "c", -1), ("r", "a", 0)]
    return write(tmp_path / "small", documents, queries, qrels), by_angle(angles)


def test_graded_example_by_hand(small):
    folder, vectors = small
    table = evaluate_retrieval({"lookup": Lookup(vectors, [])}, folder)
    # Grades in the order found are 0, 2, 0, 1; the best order is 2, 1.
    found = 2 / np.log2(3) + 1 / np.log2(5)
    expected = [found / (2 + 1 / np.log2(3)), 1, 1, 1 / 2]
    assert table.rows == ("lookup",)
    assert table.columns == ("nDCG@10", "recall@10", "recall@100", "MRR@10")
    assert_allclose(table.scores, [100 * np.array(expected)], rtol=1e-12)
    assert "1 queries and 4 documents; 1 queries without a relevant one" in str(table)


def collection(folder, n_documents, relevant):
    """Write documents at rising angles from one query, of which some are relevant."""
    documents = {f"d{i}": f"text {i}" for i in range(n_documents)}
    qrels = [("q", f"d{i}", 1) for i in relevant]
    write(folder, documents, {"q": "query"}, qrels)
    angles = {f"text {i}": 80 * i / n_documents for i in range(n_documents)}
    return Lookup(by_angle({"query": 0, **angles}), [])


@pytest.mark.parametrize(
    ("relevant", "expected"),
    [
        (range(3), [1, 1, 1, 1]),  # the best order
        (range(10), [1, 1, 1, 1]),
        (range(20), [1, 0.5, 1, 1]),  # more relevant ones than places
        ([9], [1 / np.log2(11), 1, 1, 1 / 10]),
        ([10], [0, 0, 1, 0]),  # behind the tenth
        ([99, 100], [0, 0, 0.5, 0]),
        (range(147, 150), [0, 0, 0, 0]),  # the worst order
    ],
    ids=str,
)
def test_measures_by_the_place_of_relevant_documents(tmp_path, relevant, expected):
    encoder = collection(tmp_path, 150, relevant)
    table = evaluate_retrieval(encoder, tmp_path)
    assert_allclose(table.scores, [100 * np.array(expected)], atol=1e-12)


def by_trec_eval(cosines, documents, queries, qrels):
    """Means of trec_eval's measures, of queries with a relevant document, times 100."""
    pytrec_eval = pytest.importorskip("pytrec_eval")
    judged = {}
    for query, document, grade in qrels:
        judged.setdefault(query, {})[document] = grade
    judged = {query: grades for query, grades in judged.items() if max(grades.values()) > 0}
    runs = {
        query: dict(zip(documents, row.tolist(), strict=True))
        for query, row in zip(queries, cosines, strict=True)
    }
    evaluate = pytrec_eval.RelevanceEvaluator(judged, {"ndcg_cut.10", "recall.10,100"}).evaluate
    found = evaluate(runs)
    ranks = pytrec_eval.RelevanceEvaluator(judged, {"recip_rank"}).evaluate(runs)
    rows = [
        [one["ndcg_cut_10"], one["recall_10"], one["recall_100"], ranks[query]["recip_rank"]]
        for query, one in found.items()
    ]
    rows = np.array(rows)
    rows[:, 3] *= rows[:, 3] > 0.0999  # of the first ten
    return 100 * rows.mean(axis=0)


@pytest.mark.parametrize("seed", range(6))
def test_scores_are_those_of_trec_eval_with_its_ties(tmp_path, seed):
    rng = np.random.default_rng(seed)
    n_documents, n_queries = (40, 9) if seed == 2 else (300, 25)
    names = rng.permutation(1000)[:n_documents]
    documents = {f"D{i}" if i % 3 else f"é{i}": f"document {i}" for i in names}
    queries = {str(i): f"query {i}" for i in range(n_queries)}
    qrels = [
        (query, document, int(rng.choice([-1, 0, 1, 1, 2, 3])))
        for query in list(queries)[:-1]
        for document in rng.choice(list(documents), size=rng.integers(1, 30), replace=False)
    ]
    write(tmp_path, documents, queries, qrels)
    # Whole numbers in the plane: hundreds of documents share a few directions.
    texts = [*documents.values(), *queries.values()]
    vectors = rng.integers(-2, 3, size=(len(texts), 2 if seed < 4 else 6)).astype(float)
    table = evaluate_retrieval(Lookup(dict(zip(texts, vectors, strict=True)), []), tmp_path)
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
    cosines = unit[n_documents:] @ unit[:n_documents].T
    expected = by_trec_eval(cosines, documents, queries, qrels)
    assert_allclose(table.scores[0], expected, rtol=0, atol=1e-9)


def test_titles_stand_in_front_and_empty_documents_are_missed(tmp_path):
    write(tmp_path, {"x": ""}, {"q": "query"}, [("q", "1", 1), ("q", "x", 1)])
    lines = [
        {"_id": 1, "title": "A title", "text": "and text "},
        {"_id": "2", "title": None, "text": "no title"},
        {"_id": "x", "title": " ", "text": "\n"},
    ]
    content = "\n\n".join(map(json.dumps, lines))
    (tmp_path / "corpus.jsonl").write_text(f"\ufeff{content}", encoding="utf-8")
    encoder = Lookup({"A title and text": [1, 0], "no title": [0, 1], "query": [1, 0]}, [])
    table = evaluate_retrieval(encoder, tmp_path)
    assert encoder.seen == [["no title", "A title and text"]]
    assert_allclose(table.scores, [[100 / (1 + 1 / np.log2(3)), 50, 50, 100]])
    assert "2 documents; 0 queries without a relevant one and 1 empty" in str(table)


def test_a_zero_vector_is_ranked_by_a_cosine_of_zero(small):
    folder, vectors = small
    vectors = {**vectors, "second": (0, 0), "first": (-1, 0)}
    table = evaluate_retrieval(Lookup(vectors, []), folder)
    assert_allclose(table.scores[0, 3], 50)  # behind the third and fourth, of which d counts
    assert np.isfinite(table.scores).all()


@pytest.fixture
def noisy(tmp_path):
    """Folder of 200 queries with an answer each, and encoders with more and less noise."""
    rng = np.random.default_rng(0)
    answers = rng.normal(size=(200, 12))
    documents = {str(i): f"answer {i}" for i in range(200)}
    queries = {str(i): f"question {i}" for i in range(200)}
    folder = write(tmp_path / "noisy", documents, queries, [(i, i, 1) for i in documents])

    def encoder(noise):
        asked = answers + noise * rng.normal(size=answers.shape)
        texts = [*documents.values(), *queries.values()]
        return Lookup(dict(zip(texts, np.vstack([answers, asked]), strict=True)), [])

    return folder, {"worse": encoder(0.9), "better": encoder(0.7), "like": encoder(0.9)}


def test_interval_is_that_of_the_mean_difference_of_queries(noisy):
    folder, encoders = noisy
    table = evaluate_retrieval(encoders, folder)
    differences = table.scores - table.scores[0]
    assert_array_equal(table.intervals[0], 0)
    low, high = np.moveaxis(table.intervals[1:], -1, 0)
    assert (low <= differences[1:]).all()
    assert (differences[1:] <= high).all()
    assert low[0, 0] > 0  # the better one, beyond doubt
    assert low[1, 0] < 0 < high[1, 0]
    # MRR@10 of single answers: the normal interval of a paired mean.
    each = [np.array([*reciprocal_ranks(encoders[name])]) for name in ("worse", "better")]
    error = 100 * np.std(each[1] - each[0]) / np.sqrt(200)
    assert_allclose(differences[1, 3], 100 * np.mean(each[1] - each[0]))
    assert_allclose(high[0, 3] - low[0, 3], 2 * 1.96 * error, rtol=0.1)
    again = evaluate_retrieval(encoders, folder)
    assert_array_equal(again.intervals, table.intervals)
    other = evaluate_retrieval(encoders, folder, random_state=1)
    assert (other.intervals[1] != table.intervals[1]).any()


def reciprocal_ranks(encoder):
    """Of the answer with the question's number, among the first ten."""
    for i in range(200):
        question = encoder.vectors[f"question {i}"]
        answers = [encoder.vectors[f"answer {j}"] for j in range(200)]
        cosines = [a @ question / np.linalg.norm(a) for a in answers]
        rank = 1 + sum(c > cosines[i] for c in cosines)
        yield 1 / rank if rank <= 10 else 0


def test_an_encoder_is_fitted_on_the_documents_or_other_texts(small):
    folder, vectors = small
    encoder = Lookup(vectors, [])
    evaluate_retrieval(encoder, folder)
    evaluate_retrieval({"one": encoder}, folder, fit_on=["first", "second"])
    assert encoder.seen == [["fourth", "third", "second", "first"], ["first", "second"]]
    assert not hasattr(encoder, "fitted_")


@pytest.mark.parametrize("wrap", [lambda e: e, FrozenEstimator])
def test_a_fitted_encoder_stays_as_it_is(small, wrap):
    folder, vectors = small
    encoder = make_pipeline(Lookup(vectors, []), StandardScaler()).fit(["first", "fourth"])
    encoder[0].seen.clear()
    mean = encoder[1].mean_.copy()
    evaluate_retrieval(wrap(encoder), folder)
    assert encoder[0].seen == []
    assert_array_equal(encoder[1].mean_, mean)


@pytest.mark.parametrize(
    ("file", "line", "message"),
    [
        ("corpus.jsonl", "{", r"corpus\.jsonl, line 5 is not JSON: "),
        ("corpus.jsonl", '{"_id": "e"}', "line 5 has no column 'text'"),
        ("queries.jsonl", '{"text": "e"}', r"queries\.jsonl, line 3 has no column '_id'"),
        ("corpus.jsonl", '{"_id": "e", "text": 3}', "line 5 is .*text and title as str"),
        ("corpus.jsonl", '{"_id": "e", "text": "", "title": 3}', "line 5 is .*title as str"),
        ("qrels/test.tsv", "z\ta\t1", r"test\.tsv, line 7 is of the query 'z'; queries"),
        ("qrels/test.tsv", "q\ta\tmany", "line 7 has the score 'many'; expected a number"),
    ],
)
def test_a_bad_line_is_named(small, file, line, message):
    folder, vectors = small
    with (folder / file).open("a") as stream:
        stream.write(line)
    with pytest.raises(ValueError, match=message):
        evaluate_retrieval(Lookup(vectors, []), folder)


def test_judgments_without_a_relevant_document_are_refused(small):
    folder, vectors = small
    (folder / "qrels/test.tsv").write_text(f"{HEADER}\nq\ta\t0\n")
    with pytest.raises(ValueError, match=r"no score above 0.*another split"):
        evaluate_retrieval(Lookup(vectors, []), folder)


def test_a_missing_file_or_split_is_named(small, tmp_path):
    folder, vectors = small
    encoder = Lookup(vectors, [])
    match = r"no qrels/dev\.tsv in '.*small'.*Splits found: test; choose one of them"
    with pytest.raises(FileNotFoundError, match=match):
        evaluate_retrieval(encoder, folder, split="dev")
    with pytest.raises(FileNotFoundError, match=r"no corpus\.jsonl in '.*nowhere'.*layout"):
        evaluate_retrieval(encoder, tmp_path / "nowhere")
    (folder / "queries.jsonl").unlink()
    with pytest.raises(FileNotFoundError, match=r"no queries\.jsonl in"):
        evaluate_retrieval(encoder, folder)
    assert encoder.seen == []


def test_own_documents_are_left_out_as_in_beir(tmp_path):
    """Half of the queries are documents, as in ArguAna; ids alone may be equal by chance."""
    rng = np.random.default_rng(0)
    documents = {f"d{i}": f"document {i}" for i in range(150)}
    queries = {f"d{i}": f"document {i}" for i in range(20)}
    queries |= {f"d{i}": f"query {i}" for i in range(20, 40)}
    qrels = [
        (query, document, int(rng.integers(1, 3)))
        for query in queries
        for document in {*rng.choice([*documents], 5).tolist(), f"d{rng.integers(40)}"}
    ]
    write(tmp_path, documents, queries, qrels)
    titled = [
        {"_id": key, "title": f"on {key}", "text": text}
        if key == "d3"
        else {"_id": key, "text": text}
        for key, text in documents.items()
    ]
    (tmp_path / "corpus.jsonl").write_text("\n".join(map(json.dumps, titled)))
    texts = [*documents.values(), *queries.values(), "on d3 document 3"]
    vectors = dict(zip(texts, rng.normal(size=(len(texts), 6)), strict=True))
    vectors["on d3 document 3"] = vectors["document 3"]
    table = evaluate_retrieval(Lookup(vectors, []), tmp_path)
    sides = [np.array([vectors[t] for t in side.values()]) for side in (queries, documents)]
    unit = [side / np.linalg.norm(side, axis=1, keepdims=True) for side in sides]
    cosines = unit[0] @ unit[1].T
    cosines[np.arange(20), np.arange(20)] = -9  # behind all others, so found by no measure
    assert_allclose(table.scores[0], by_trec_eval(cosines, documents, queries, qrels))
    assert "20 queries are documents and do not find themselves" in str(table)


def test_documents_that_are_not_there_count_as_missed_and_grades_may_have_a_point(small):
    folder, vectors = small
    with (folder / "qrels" / "test.tsv").open("a") as stream:
        stream.write("q\tz\t1.0\n")
    table = evaluate_retrieval(Lookup(vectors, []), folder)
    found = 2 / np.log2(3) + 1 / np.log2(5)
    best = 2 + 1 / np.log2(3) + 1 / np.log2(4)
    assert_allclose(table.scores, [[100 * found / best, 200 / 3, 200 / 3, 50]])
    assert "1 relevant documents are missing" in str(table)
    (folder / "qrels" / "test.tsv").write_text(f"{HEADER}\nq\ty\t1\nq\tz\t1\n")
    with pytest.raises(ValueError, match=r"none of the 2 relevant documents .*such as .*'y'"):
        evaluate_retrieval(Lookup(vectors, []), folder)


def test_splits_are_chosen_by_name(small):
    folder, vectors = small
    (folder / "qrels" / "dev.tsv").write_text(f"{HEADER}\r\nr\td\t1\r\n")
    vectors["unjudged"] = vectors["fourth"]
    table = evaluate_retrieval(Lookup(vectors, []), folder, split="dev")
    assert_allclose(table.scores, 100)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"encoder": 3}, TypeError, "The encoder is of type int"),
        ({"encoder": lambda texts: np.full((len(texts), 2), np.inf)}, ValueError, "not finite"),
        ({"fit_on": [1]}, TypeError, "fit_on has 1 of type int"),
    ],
)
def test_errors_say_what_is_expected(small, arguments, error, message):
    folder, vectors = small
    defaults = {"encoder": Lookup(vectors, []), "folder": folder}
    with pytest.raises(error, match=message):
        evaluate_retrieval(**(defaults | arguments))


@pytest.mark.parametrize("seed", range(5))
def test_equal_cosines_are_found_equal_whatever_their_last_bits(tmp_path, seed):
    """Vectors of -1, 0 and 1; ties are counted exactly, in whole numbers."""
    rng = np.random.default_rng(seed)
    documents = {f"d{i:03}": f"document {i}" for i in range(60)}
    queries = {f"q{i}": f"query {i}" for i in range(5)}
    texts = [*documents.values(), *queries.values()]
    vectors = rng.integers(-1, 2, (65, 6))
    vectors[(vectors == 0).all(axis=1)] = 1
    qrels = [(q, d, 1) for q in queries for d in rng.choice(list(documents), 8, replace=False)]
    write(tmp_path, documents, queries, qrels)
    lookup = Lookup(dict(zip(texts, vectors, strict=True)), [])
    found = evaluate_retrieval(lookup, tmp_path).scores[0, 1]
    recall = []
    for i, query in enumerate(queries):
        dots = (vectors[:60] @ vectors[60 + i]).tolist()
        squares = (vectors[:60] ** 2).sum(axis=1).tolist()
        # The order of dot / root(square) is that of sign * dot² / square.
        keys = [Fraction(abs(x) * x, s) for x, s in zip(dots, squares, strict=True)]
        ranked = sorted(zip(keys, documents, strict=True), reverse=True)[:10]
        recall.append(sum((query, name, 1) in qrels for _, name in ranked) / 8)
    assert found == pytest.approx(100 * np.mean(recall))


def test_queries_of_one_template_are_one_piece_of_evidence(tmp_path):
    """Their scores depend on each other, so that the interval is wider."""
    rng = np.random.default_rng(0)
    documents = {str(i): f"answer {i}" for i in range(120)}
    answers, widths = rng.normal(size=(120, 6)), []
    noise = [rng.uniform(0.1, 2, 20).repeat(6)[:, None] * rng.normal(size=(120, 6))] * 2
    noise[1] = noise[1] * rng.uniform(0.3, 3, 20).repeat(6)[:, None]
    for words in ("w{0}.1 w{0}.2 w{0}.3 w{0}.4 w{0}.5 name{1}", "question{1}"):
        queries = {str(i): words.format(i // 6, i) for i in range(120)}
        texts = [*documents.values(), *queries.values()]
        encoders = {
            name: Lookup(dict(zip(texts, [*answers, *(answers + some)], strict=True)), [])
            for name, some in zip("ab", noise, strict=True)
        }
        qrels = [(i, i, 1) for i in documents]
        folder = write(tmp_path / words[:1], documents, queries, qrels)
        table = evaluate_retrieval(encoders, folder)
        widths.append(np.ptp(table.intervals[1], axis=1))
        assert ("count queries that share most" in table.note) == (words[0] == "w")
    assert (widths[0] > 1.2 * widths[1])[[0, 1, 3]].all()


@pytest.mark.parametrize("wrap", [lambda search: search, FrozenEstimator])
def test_a_search_encoder_encodes_queries_as_queries(small, wrap):
    folder, vectors = small
    bank = by_angle({str(i): -60 + i for i in range(20)})
    search = SearchEncoder(Lookup(vectors | bank, []), lexical_weight=0)
    search = search.fit(["first", "second", "third", "fourth"], queries=[*bank])
    table = evaluate_retrieval({"search": wrap(search)}, folder)
    ranks = search.kneighbors(["question"], 4)[1][0].tolist()
    assert ranks != [0, 1, 2, 3]  # as raw vectors and queries as documents have it
    first = min(ranks.index(relevant) for relevant in (1, 3))
    assert table.scores[0, 3] == pytest.approx(100 / (1 + first))


class Sides:
    """A model whose queries are turned by 30 degrees, for which `encode` is no side."""

    def __init__(self, vectors):
        self.of_text = vectors

    def encode(self, texts):
        return np.array([self.of_text[text] for text in texts])

    def encode_document(self, texts):
        return self.encode(texts)

    def encode_query(self, texts):
        turn = np.deg2rad(30)
        rotation = [[np.cos(turn), np.sin(turn)], [-np.sin(turn), np.cos(turn)]]
        return self.encode(texts) @ np.array(rotation)


def test_a_fitted_encoder_that_ignores_declared_sides_warns(small):
    folder, vectors = small
    encoder = TextEncoder(Sides(vectors))
    by_sides = evaluate_retrieval({"sides": encoder}, folder).scores[0, 0]
    fitted = make_pipeline(encoder).fit(["first"])
    with pytest.warns(UserWarning, match="encodes both alike"):
        alike = evaluate_retrieval({"fitted": fitted}, folder).scores[0, 0]
    assert by_sides != alike
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kept = evaluate_retrieval({"frozen": FrozenEstimator(fitted)}, folder)
    assert kept.scores[0, 0] == alike
