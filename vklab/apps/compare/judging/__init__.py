"""Judgement of outputs: error measures, the length of sums, tolerances, classes that flip."""
