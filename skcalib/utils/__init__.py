"""Helpers of every other package: input, texts, labels, threads, devices, private names."""
