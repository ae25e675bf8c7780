"""Texts that occur twice."""
