"""Uses of calibrated vectors: pairs, thresholds, duplicates, answers, classes."""
