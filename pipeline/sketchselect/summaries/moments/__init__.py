"""Moments of features and targets, in all their forms."""
