"""Score encoders against human judgements of similarity and relevance, and against labels.

`evaluate_sts` makes the papers' tables; `evaluate_retrieval` scores search with queries on
folders in BEIR's layout. The command ``skcalib evaluate`` runs both. `evaluate_labelled`
scores search, clustering and classification of texts with labels.
"""

from skcalib.evaluation._labelled import evaluate_labelled
from skcalib.evaluation._retrieval import RetrievalTable, evaluate_retrieval
from skcalib.evaluation._score_table import ScoreTable
from skcalib.evaluation._sts import evaluate_sts

__all__ = [
    "RetrievalTable",
    "ScoreTable",
    "evaluate_labelled",
    "evaluate_retrieval",
    "evaluate_sts",
]
