"""JPEGs as coefficient records: which can become such, which stay JPEGs and why, and counts of both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastload._native import _C
from fastload.errors import FastloadError
from fastload.machine.sizes import counted

FORMS = ("fast", "small")  # what the masks of a record are optimised for
DEFAULT_FORM = "fast"
FORM_HELP = (
    "store JPEGs as coefficient records: the same pixels in less decoding time; 'unpack' gives the "
    "identical files. 'fast' (default) decodes faster, 'small' takes fewer bytes"
)
#: A note in the manifests of such sets and in commands' output.
NOTE = (
    "Pictures of codec 'coefficients' are no image files: other programs cannot show them. 'fastload unpack' "
    "writes the identical JPEGs, 'fastload recode SET --jpeg' puts them back into the set."
)
FACTS = "coefficient_records"  # the tally, in the manifest's options and in a shard's part
_REASONS, _EXAMPLES = 20, 3  # reasons counted separately, and examples named for each
_OTHERS = "other reasons"
_PREFIX = "cannot become a coefficient record: "


@dataclass(frozen=True)
class RecodeOutcome:
    """The outcome of recoding one JPEG."""

    jpeg_bytes: int
    record_bytes: int  # 0: it stayed a JPEG
    reason: str = ""  # why it stayed


def to_record(jpeg: bytes, form: str) -> tuple[bytes, RecodeOutcome]:
    """Return the coefficient record of a JPEG, or the JPEG itself if it cannot become one.

    Args:
        jpeg: the file's bytes.
        form: one of :data:`FORMS`.
    """
    try:
        record = _C.to_coefficients(np.frombuffer(jpeg, np.uint8), form)
    except FastloadError as error:
        reason = str(error).removeprefix(_PREFIX).rstrip(".")
        return jpeg, RecodeOutcome(len(jpeg), 0, reason)
    return record, RecodeOutcome(len(jpeg), len(record))


class RecodeCounts:
    """Counts of the outcomes of many JPEGs; the memory does not grow with their number."""

    def __init__(self) -> None:
        self.made = self.jpeg_bytes = self.record_bytes = 0
        self._kept: Counter[str] = Counter()
        self._examples: dict[str, list[str]] = {}

    @property
    def kept(self) -> int:
        """The number of JPEGs that stayed as they were."""
        return self._kept.total()

    def add(self, key: str, outcome: RecodeOutcome) -> None:
        """Count one more; ``key`` is its record's key."""
        if not outcome.reason:
            self.made += 1
            self.jpeg_bytes += outcome.jpeg_bytes
            self.record_bytes += outcome.record_bytes
            return
        self._keep(outcome.reason, 1, [key])

    def merge(self, facts: Mapping[str, Any]) -> None:
        """Add the counts of another one's :meth:`to_json`."""
        self.made += int(facts["made"])
        self.jpeg_bytes += int(facts["jpeg_bytes"])
        self.record_bytes += int(facts["record_bytes"])
        for kept in facts["kept"]:
            self._keep(str(kept["reason"]), int(kept["count"]), list(kept["examples"]))

    def _keep(self, reason: str, count: int, keys: list[str]) -> None:
        known = self._kept.keys() - {_OTHERS}
        if reason not in known and len(known) >= _REASONS:
            reason = _OTHERS
        self._kept[reason] += count
        examples = self._examples.setdefault(reason, [])
        examples += keys[: _EXAMPLES - len(examples)]

    def to_json(self) -> dict[str, Any]:
        """Return the counts as JSON values, with the commonest reason first."""
        reasons = sorted(self._kept.items(), key=lambda item: (-item[1], item[0]))
        return {
            "made": self.made,
            "jpeg_bytes": self.jpeg_bytes,  # of those, as files
            "record_bytes": self.record_bytes,  # of the same, as records
            "kept": [
                {"reason": reason, "count": count, "examples": self._examples[reason]}
                for reason, count in reasons
            ],
        }


def said_of(options: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return table rows of the recoded JPEGs in a manifest's options, a row per reason; none without any."""
    if FACTS not in options:
        return []
    facts = options[FACTS]
    ratio = ""
    if facts["jpeg_bytes"]:
        ratio = f", {facts['record_bytes'] / facts['jpeg_bytes']:.3f} of the JPEGs' bytes"
    kept = sum(reason["count"] for reason in facts["kept"])
    recoded = counted(facts["made"], "coefficient record")
    stayed = f"{counted(kept, 'JPEG')} kept unchanged"
    rows = [("coefficients", f"{options['coefficients']}, {recoded}{ratio}; {stayed}")]
    for reason in facts["kept"]:
        rows.append(("", f"{reason['count']} x {reason['reason']} ({', '.join(reason['examples'])})"))
    return rows
