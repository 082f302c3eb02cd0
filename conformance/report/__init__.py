"""What a run found, as values, and its forms for programs and for people.

In: the results of a run. Out: :class:`~conformance.report.results.Report`, and from it JSON, JUnit
XML, one self-contained HTML page, and a table for the terminal.
"""

from conformance.report.results import Report, Result

__all__ = ["Report", "Result"]
