"""The doctor's report: one page with charts, or the same in a notebook."""

from fastload.diagnose.report.measured import History
from fastload.diagnose.report.rendering import Report, render, write_report

__all__ = ["History", "Report", "render", "write_report"]
