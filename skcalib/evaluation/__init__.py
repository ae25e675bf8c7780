"""Score encoders against human judgments of similarity and relevance, and against labels."""

from skcalib.evaluation._labeled import evaluate_labeled
from skcalib.evaluation._retrieval import evaluate_retrieval
from skcalib.evaluation._score_table import ScoreTable
from skcalib.evaluation._sts import evaluate_pairs, evaluate_sts

__all__ = [
    "ScoreTable",
    "evaluate_labeled",
    "evaluate_pairs",
    "evaluate_retrieval",
    "evaluate_sts",
]
