"""Encoders scored against human judgement, and on texts with labels.

`evaluate_sts` makes the papers' tables, on the command line too: ``skcalib evaluate``;
`evaluate_labelled` scores search, clustering and classification.
"""

from skcalib.evaluation._labelled import evaluate_labelled
from skcalib.evaluation._sts import ScoreTable, evaluate_sts

__all__ = ["ScoreTable", "evaluate_labelled", "evaluate_sts"]
