"""Tests any ``torch.compile`` backend. In: a compiler by name. Out: verdicts and a report."""
