"""The doctor's report: a page with charts, as a file or in a notebook."""

from fastload.diagnose.pages.measured import History
from fastload.diagnose.pages.rendering import Report

__all__ = ["History", "Report"]
