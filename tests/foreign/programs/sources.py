"""The files of the training programs, in the user's folder: ``python sources.py FOLDER [REPOSITORY...]``.

``files.txt`` has a line for each: repository, commit, path, SHA-256. A file that lacks comes from GitHub; one
that is there is taken as it is, if its bytes are those.
"""

from __future__ import annotations

import hashlib
import sys
import urllib.request
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path

LIST = Path(__file__).with_name("files.txt")
RAW = "https://raw.githubusercontent.com"


@dataclass(frozen=True)
class Source:
    """A file of a repository at a commit."""

    of: str
    commit: str
    path: str
    sha256: str

    def place(self, folder: Path) -> Path:
        """Where it is in the user's folder."""
        return folder / "pinned" / self.of.rpartition("/")[2] / self.path

    def fetch(self, folder: Path) -> None:
        """Have it there.

        Raises:
            OSError: GitHub does not give it.
            ValueError: its bytes are others.
        """
        place = self.place(folder)
        if not place.is_file():
            url = f"{RAW}/{self.of}/{self.commit}/{self.path}"
            try:
                with urllib.request.urlopen(url, timeout=60) as answer:
                    data = answer.read()
            except (OSError, HTTPException) as error:
                raise OSError(f"{url} cannot be fetched: {error}. Put that file at {place}.") from error
            self.check(data, f"what {RAW} gave")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)
        self.check(place.read_bytes(), str(place))

    def check(self, data: bytes, where: str) -> None:
        """Raise ValueError if the bytes are others."""
        found = hashlib.sha256(data).hexdigest()
        if found != self.sha256:
            raise ValueError(
                f"{where} is not {self.path} of {self.of} at {self.commit}: its SHA-256 is {found}, not "
                f"{self.sha256}. Remove it, so that it is fetched anew."
            )


def sources(of: str = "") -> list[Source]:
    """All files, or those of one repository."""
    found = [Source(*line.split()) for line in LIST.read_text(encoding="utf-8").splitlines()]
    return [source for source in found if of in ("", source.of)]


if __name__ == "__main__":
    for each in sources():
        if not sys.argv[2:] or each.of in sys.argv[2:]:
            each.fetch(Path(sys.argv[1]))
