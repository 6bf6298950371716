"""What a browser is asked about a report's layout."""

from __future__ import annotations

__all__ = ["CHARTS"]

# Letters that leave their chart, and letters of one chart that lie on each other.
CHARTS = """
  const bad = [];
  for (const svg of document.querySelectorAll('svg')) {
    const frame = svg.getBoundingClientRect();
    const boxes = [...svg.querySelectorAll('text')].map(t => [t.textContent, t.getBoundingClientRect()]);
    if (boxes.length < 3) bad.push('a chart has no letters');
    boxes.forEach(([words, a], i) => {
      if (a.left < frame.left - 1 || a.right > frame.right + 1) bad.push('cut: ' + words);
      if (a.top < frame.top - 1 || a.bottom > frame.bottom + 1) bad.push('cut: ' + words);
      for (const [others, b] of boxes.slice(i + 1))
        if (a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 2 && b.top < a.bottom - 2)
          bad.push('on each other: ' + words + ' | ' + others);
    });
  }
  if (document.documentElement.scrollWidth > document.documentElement.clientWidth) bad.push('wide');
  return bad;
"""
