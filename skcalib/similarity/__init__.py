"""What calibrated vectors are good for: pairs, thresholds, duplicates, answers, classes."""
