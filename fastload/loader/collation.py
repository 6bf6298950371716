"""What ``collate=`` and ``text=`` come to for a loader's dataset and transform."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fastload.backends.options import Options
from fastload.collate.planned import Collation
from fastload.dataset.detection import stored_size
from fastload.dataset.kind import Kind
from fastload.dataset.views import read_by
from fastload.prefetch.feeder import BatchKey
from fastload.sample.captions import Captions
from fastload.sample.fields import Text, Texts
from fastload.sample.planned import chosen
from fastload.sampler import Sampler
from fastload.transforms.plan import Plan

if TYPE_CHECKING:
    from fastload.backends.protocol import Backend

__all__ = ["after_engine", "planned_collation", "planned_text"]


def planned_collation(given: Mapping[str, Any], dataset: Any, kind: Kind, plan: Plan) -> Collation:
    """The collate that a loader was given, fitted to what it reads.

    Args:
        given: the loader's arguments; ``collate`` is a word for objects, or a callable.
        dataset, kind: what is read, and how.
        plan: the compiled transform.

    Raises:
        ValueError: a field that is needed is not there, or an argument does not go with it.
    """
    if kind is not Kind.PACKED:
        raise ValueError(
            f"collate is for packed datasets; a torch Dataset has its own samples. Found: collate="
            f"{given['collate']!r}. Pack it ('fastload pack') to use it, or pass a collate_fn."
        )
    spec = given["collate"]
    if isinstance(spec, str):
        from fastload.collate.detection import Detection

        spec = Detection(spec)
    if not hasattr(spec, "planned"):
        return Collation(lambda batch, _: spec(batch))
    plans = [view for _, one in plan.scheduled for view in one.every] if plan.scheduled else plan.every
    views = [name for one in ([one for _, one in plan.scheduled] or [plan]) for name, _ in one.views]
    sizes = {view.output_size for view in plans}
    found: Collation = spec.planned(
        chosen(dataset.schema, given["fields"]), given, views, one_size=len(sizes) == 1 and None not in sizes
    )
    if found.needs and given["on_error"] == "replace":
        raise ValueError(
            f"collate={given['collate']!r} finds {found.needs} by the order of samples, and "
            "on_error='replace' puts other samples into their places. Pass on_error='skip'"
            + (", or pack image_id." if found.needs == "image ids" else ".")
        )
    return found


class _Origins:
    """Where the samples of one batch come from; see :class:`fastload.collate.planned.Origins`."""

    def __init__(self, dataset: Any, sampler: Sampler, key: BatchKey) -> None:
        self._dataset, self._sampler, self._key = dataset, sampler, key
        self._ids: list[int] | None = None

    def ids(self) -> list[int]:
        if self._ids is None:
            self._ids = self._sampler.batch(*self._key).ids.tolist()
        return self._ids

    def keys(self) -> list[str]:
        return ["" if sample < 0 else self._dataset.key(sample) for sample in self.ids()]

    def sizes(self, image: str) -> list[tuple[int, int]]:
        return [stored_size(self._dataset, sample, image) for sample in self.ids()]


def planned_text(
    given: Mapping[str, Any], dataset: Any, kind: Kind
) -> tuple[dict[str, Captions], dict[str, Any]]:
    """What is made of texts, by field, and the arguments of the loader that follow.

    Raises:
        ValueError: there is no such field of texts.
    """
    if kind is not Kind.PACKED:
        raise ValueError(
            "text is for packed datasets; a torch Dataset makes what it likes of its own. Pack it "
            "('fastload pack') to use it."
        )
    schema = dataset.schema
    texts = {
        name: made if isinstance(made, Captions) else Captions(made) for name, made in given["text"].items()
    }
    for field in chosen(schema, tuple(texts)):
        if not isinstance(field.kind, (Text, Texts)):
            raise ValueError(f"text is for fields of texts. Found: {field}.")
    rest = [field.name for field in chosen(schema, given["fields"]) if field.name not in texts]
    if not rest:
        raise ValueError(
            f"The loader decodes a field besides the texts. Found: fields={given['fields']!r}. Name one more."
        )
    return texts, {"fields": rest}


def after_engine(
    backend: Backend,
    collation: Collation | None,
    text: Mapping[str, Captions],
    dataset: Any,
    sampler: Sampler,
    options: Options,
) -> Backend:
    """What is done to a back end's batches behind everything else.

    Args:
        backend: whose.
        collation: what is made of each batch, if anything is.
        text: what is made of texts.
        dataset, sampler, options: the loader's.
    """
    read = read_by(dataset, sampler)
    if text:
        from fastload.backends.text_stage import TextStage
        from fastload.transfer.cuda import find_gpu

        gpu = find_gpu(options.device)
        move = None
        if gpu is not None:
            from fastload.transfer.nested import Mover

            move = Mover(gpu)
        ahead, threads = options.prefetch_factor, options.text_threads
        backend = TextStage(backend, dataset, read, text, threads, options.seed, ahead, move)
    if collation is None:
        return backend
    from fastload.backends.collated import CollatedBackend

    collate = collation.collate
    return CollatedBackend(backend, lambda batch, key: collate(batch, _Origins(dataset, read, key)))
