"""What follows an encoder for a task that the user names."""

from typing import NamedTuple

BY_LABELS = """\
evaluate_labelled(
    {"raw": pipeline["encode"], "calibrated": pipeline}, texts, labels
)"""
BY_GRADES = """\
[
    BiEncoder(FrozenEstimator(encoder)).fit(pairs).score(pairs, grades)
    for encoder in (pipeline["encode"], pipeline)
]"""
BY_JUDGEMENTS = """\
evaluate_retrieval(
    {"raw": pipeline["encode"], "calibrated": pipeline},
    folder,
    queries_encoder={
        "raw": pipeline.queries_["encode"], "calibrated": pipeline.queries_
    },
)"""


class Task(NamedTuple):
    """What `calibrate` does for a task, and the advice that it prints."""

    calibrates: bool = False  # always, as self-retrieval cannot judge this task
    smooths: bool = False
    advice: str = ""
    decision: str = BY_LABELS  # code that compares the pipeline with the encoder


# docs/results.md has the measurements for this table.
TASKS: dict[str | None, Task] = {
    None: Task(),
    "similarity": Task(
        advice="Graded similarity needs no smoothing, and no number of clusters.",
        decision=BY_GRADES,
    ),
    "duplicates": Task(
        calibrates=True,
        advice="Choose the threshold by the rate of false pairs, with SimilarityScale. With\n"
        "its corrected similarity, one threshold fits dense and sparse regions.",
        decision=BY_GRADES,
    ),
    "topics": Task(
        calibrates=True,
        smooths=True,
        advice="NeighborSmoothing moves each vector toward its nearest neighbors. Topics,\n"
        "intents, classes and clusters gain; graded similarity loses, and\n"
        "a search for single answers may lose.",
    ),
    "search": Task(
        calibrates=True,
        advice="The means of queries and documents differ; GroupErasure removes this\n"
        "difference. Transform documents by this pipeline, queries by its attribute queries_;\n"
        "a folder of sentence-transformers has encode_document and encode_query.",
        decision=BY_JUDGEMENTS,
    ),
}
