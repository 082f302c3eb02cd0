"""Tables of hand-written programs: what the suites ``python`` and ``mutation`` run. Plain data."""
