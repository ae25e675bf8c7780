"""The tables of the papers: Spearman's rho on the benchmarks of textual similarity.

`evaluate_sts` is the function, ``skcalib evaluate`` the command line.
"""

from skcalib.evaluation._sts import ScoreTable, evaluate_sts

__all__ = ["ScoreTable", "evaluate_sts"]
