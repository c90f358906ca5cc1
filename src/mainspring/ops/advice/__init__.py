"""Advice: `matrices` has the comparisons as data, `advise` walks the decision tree for one situation."""
