"""Summaries made of other summaries: bundles, folds, groups."""
