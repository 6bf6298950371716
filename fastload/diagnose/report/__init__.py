"""The doctor's report: a page with charts, as a file or in a notebook."""

from fastload.diagnose.report.measured import History
from fastload.diagnose.report.rendering import Report, render, write_report

__all__ = ["History", "Report", "render", "write_report"]
