"""MosaicML Composer: resuming where the loader was, without making the epoch's earlier batches again."""

from __future__ import annotations

from typing import Any

from fastload.extras import library_missing
from fastload.loader.view import LoaderView, view_of

try:
    from composer.core import Callback
except ImportError as error:
    raise library_missing("composer", "fastload.integrations.composer", error) from error


class LoaderState(Callback):  # type: ignore[misc]
    """A callback that keeps the state of a :class:`fastload.DataLoader` in composer's checkpoints.

    Pass it as ``Trainer(callbacks=[LoaderState()], spin_dataloaders=False)``. Without it, composer also
    resumes correctly, but iterates from the epoch's beginning and discards batches.
    """

    def __init__(self) -> None:
        self._loader: LoaderView | None = None
        self._loaded: dict[str, Any] | None = None

    def fit_start(self, state: Any, logger: Any) -> None:
        """Take the training loader, and load the state that a checkpoint has.

        Raises:
            TypeError: the training loader is not a :class:`fastload.DataLoader`.
            StateError: the checkpoint's loader had another dataset, seed or order.
        """
        loader = view_of(state.train_dataloader)
        if loader is None:
            raise TypeError(
                f"LoaderState keeps the state of a fastload.DataLoader. Found train_dataloader: "
                f"{type(state.train_dataloader).__name__}. Leave the callback out, and spin_dataloaders=True."
            )
        self._loader = loader
        if self._loaded is not None:
            loader.load_state_dict(self._loaded)
            self._loaded = None

    def state_dict(self) -> dict[str, Any]:
        """Return the loader's state, which is the same on all ranks; composer saves that of the first."""
        if self._loader is None:
            return {} if self._loaded is None else {"loader": self._loaded}
        return {"loader": self._loader.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Keep the state until the loader is known."""
        self._loaded = state.get("loader")
