"""Where a stack of Python frames is: the kind of work, the user's line, and what it works on.

Imported in worker processes, so it imports nothing but the standard library.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import functools
import inspect
import linecache
import os
import re
import sys
import sysconfig
import threading
from types import CodeType, FrameType, ModuleType
from typing import Any, NamedTuple

# ---- A place in the user's code ---------------------------------------------------------------------


class Spot(NamedTuple):
    """What a thread was doing.

    Args:
        part: of the loop: "sample", "collate", "starting", "waiting" (for a batch), "idle" (a worker without
            an order), "passing" (batches between processes), "loop" (outside ``next()``), "feed" (a batch
            that the doctor gives again).
        kind: of work: "reading", "decode", "video", "python", "transform", "processor", "lock", "sleep",
            "sync", "logging", "copies", "shared-memory", "pickling", "collate", "step", or the part itself.
        file, line: of the innermost frame of the user's own code; "" and 0: there is none.
        text: the expression there, such as ``df[df.id == i]``.
        function: the qualified name of the function there, or of the library's function.
        library: the innermost library that was called ("PIL", "h5py"); "" for the user's own code.
        call: what was called there, as ``module.name``, if it could be found.
    """

    part: str
    kind: str
    file: str = ""
    line: int = 0
    text: str = ""
    function: str = ""
    library: str = ""
    call: str = ""


# ---- Frames -----------------------------------------------------------------------------------------

_STDLIB = os.path.join(sysconfig.get_path("stdlib"), "")
_OURS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")
_PACKAGES = re.compile(r".*[/\\](?:site|dist)-packages[/\\]")
_LONGEST = 60  # characters of an expression
_LINES = 12  # of an expression; a statement with a block has more
_DEEPEST = 80  # frames that are looked at
_LOOK_AT_LOCALS = frozenset(("locals", "vars", "dir", "eval", "exec", "f_locals"))

_library_of: dict[str, str] = {}  # by file name; "" for the user's own
_positions: dict[CodeType, list[tuple[int | None, int | None, int | None, int | None]]] = {}


def library_of(file: str) -> str:
    """Return the package to which a file belongs; "" for the user's own code."""
    known = _library_of.get(file)
    if known is None:
        known = _library_of[file] = _found_library(file)
    return known


def _found_library(file: str) -> str:
    if file.startswith(_OURS):
        return "fastload"
    inside = _PACKAGES.sub("", file)
    if inside != file:
        return re.split(r"[/\\.]", inside, maxsplit=1)[0]
    if file.startswith(_STDLIB):
        return re.split(r"[/\\]|\.py", file[len(_STDLIB) :], maxsplit=1)[0]
    if file.startswith("<frozen"):
        return file.strip("<>").split(" ", maxsplit=1)[-1]
    # Code that was made as text, as dataclasses do; a notebook's cell has its lines in linecache.
    return "python" if file.startswith("<") and not linecache.getline(file, 1) else ""


class Frame:
    """One frame of a stack, seen when it was interrupted."""

    __slots__ = ("code", "file", "frame", "lasti", "library", "line")

    def __init__(self, frame: FrameType) -> None:
        self.frame = frame
        self.code = frame.f_code
        self.file = self.code.co_filename
        self.line = frame.f_lineno or self.code.co_firstlineno
        self.lasti = frame.f_lasti
        self.library = library_of(self.file)
        if not self.library and str(frame.f_globals.get("__name__", "")).startswith("transformers."):
            self.library = "transformers"  # a copy of it in the user's project

    @property
    def name(self) -> str:
        """The function's qualified name; its name before Python 3.11."""
        return str(getattr(self.code, "co_qualname", self.code.co_name))

    @property
    def base(self) -> str:
        """The file's name without its folder."""
        return os.path.basename(self.file)

    @property
    def text(self) -> str:
        """The expression that was at work; the whole line before Python 3.11, or if it is a statement."""
        start, end, column, end_column = self._position()
        lines = [
            linecache.getline(self.file, number, self.frame.f_globals)
            for number in range(start or self.line, (end or start or self.line) + 1)
        ]
        if start is None or column is None or end_column is None or not lines:
            return lines[0].strip() if lines else ""
        if len(lines) > _LINES:
            return lines[0].strip()
        lines[-1] = lines[-1].encode()[:end_column].decode(errors="replace")
        lines[0] = lines[0].encode()[column:].decode(errors="replace")
        text = "".join(lines).strip()
        if parsed(text) is not None:
            return text
        return text.splitlines()[0].partition("  #")[0].rstrip(": ") if text else ""

    def _position(self) -> tuple[int | None, int | None, int | None, int | None]:
        known = _positions.get(self.code)
        if known is None:
            of = getattr(self.code, "co_positions", None)
            known = _positions[self.code] = list(of()) if of is not None else []
        place = self.lasti // 2
        return known[place] if 0 <= place < len(known) else (None, None, None, None)

    def local(self, name: str) -> Any:
        """Return a local variable; None if there is none, or if it cannot be had without a trace.

        Before Python 3.13 all that look at a function's variables by name share one dict: ``locals()``, and
        whoever has the frame. Reading it here brings it up to date, so functions that call ``locals()`` are
        left alone. It is emptied again, since it would keep what is in it alive; but not while others hold
        it, and not under a debugger, which would write the empty one back.
        """
        code, frame = self.code, self.frame
        if sys.version_info >= (3, 13) or not code.co_flags & inspect.CO_OPTIMIZED:
            return frame.f_locals.get(name)
        if not _LOOK_AT_LOCALS.isdisjoint(code.co_names) or not self.has(name):
            return None
        shared = frame.f_locals
        found = shared.get(name)
        # Held by the frame, by ``shared`` and by the call that counts; what locals() just returned is held
        # by the stack as well.
        if sys.getrefcount(shared) == 3 and frame.f_trace is None and not _is_traced():
            shared.clear()
        return found

    def has(self, name: str) -> bool:
        """Whether a name is a variable of the function's own, or of one around it."""
        code = self.code
        return name in code.co_varnames or name in code.co_cellvars or name in code.co_freevars


def _is_traced() -> bool:
    of = (sys.gettrace, sys.getprofile, threading.gettrace, threading.getprofile)
    return any(each() is not None for each in of)


def frames_of(frame: FrameType | None) -> list[Frame]:
    """Return the frames of a stack, the innermost first, without those of the profiler."""
    found: list[Frame] = []
    while frame is not None and len(found) < _DEEPEST:
        found.append(Frame(frame))
        frame = frame.f_back
    return found


# ---- What a frame calls -----------------------------------------------------------------------------

_LOCKED = re.compile(r"(?:with\s+)?([A-Za-z_][\w.]*?)(?:\.(?:acquire|__enter__)\(.*|\s+as\s.*|:.*)?$")


@functools.lru_cache(4096)
def parsed(text: str) -> ast.expr | None:
    """Parse an expression; None if it is none."""
    try:
        return ast.parse(f"({text})", mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def called(frame: Frame, text: str) -> str:
    """Return what a frame calls, as ``module.name``; ``?.name`` for a method of something unknown, or "".

    Nothing of the user's runs: attributes of objects are looked up in their classes.
    """
    tree = parsed(text)
    if not isinstance(tree, ast.Call):
        return ""
    function, names = tree.func, []
    while isinstance(function, ast.Attribute):
        names.append(function.attr)
        function = function.value
    if not isinstance(function, ast.Name):
        return f"?.{names[0]}" if names else ""
    dotted = ".".join([function.id, *reversed(names)])
    return _name_of(_found(frame, dotted)) or dotted


def object_of(frame: Frame, text: str) -> Any:
    """Return the object that a dotted name means in a frame; None if there is none."""
    match = _LOCKED.match(text)
    return _found(frame, match[1]) if match is not None else None


def _found(frame: Frame, dotted: str) -> Any:
    root, *names = dotted.split(".")
    value = frame.local(root) if frame.has(root) else frame.frame.f_globals.get(root)
    if value is None:
        value = getattr(builtins, root, None)
    for name in names:
        value = _attribute(value, name)
    return value


def _attribute(value: Any, name: str) -> Any:
    if value is None:
        return None
    if isinstance(value, ModuleType):
        return value.__dict__.get(name)
    kinds = value.__mro__ if isinstance(value, type) else type(value).__mro__
    with contextlib.suppress(AttributeError):
        own = object.__getattribute__(value, "__dict__")
        if name in own:
            return own[name]
    for kind in kinds:
        if name in kind.__dict__:
            return kind.__dict__[name]
    return None


def _name_of(value: Any) -> str:
    if value is None or isinstance(value, (int, float, str, bytes)):
        return ""
    value = getattr(value, "__func__", value) if isinstance(value, (staticmethod, classmethod)) else value
    kind = value if isinstance(value, type) or hasattr(value, "__qualname__") else type(value)
    of = getattr(value, "__objclass__", None)  # a method of a class that is written in C
    if of is not None:
        return f"{of.__module__}.{of.__qualname__}.{getattr(value, '__name__', '')}"
    module, name = getattr(kind, "__module__", "") or "", getattr(kind, "__qualname__", "") or ""
    return f"{module}.{name}".lstrip(".")


# ---- Kinds of work ----------------------------------------------------------------------------------

_DECODERS = re.compile(
    r"cv2\.(imread|imdecode)|simplejpeg\.|turbojpeg\.|imageio\.|skimage\.io\.|torchvision\.io\."
    r"|torchaudio\.(load|backend)|soundfile\.|librosa\.(load|core)|nvidia\.nvimgcodec"
)
_VIDEO = re.compile(r"decord\.|av\.|torchcodec\.|cv2\.VideoCapture|torchvision\.io\.(\w*video|VideoReader)")
_VIDEO_FILES = re.compile(r"(torchvision/io/\w*video\w*|lerobot/datasets/video_utils)\.py$")
_READERS = re.compile(
    r"(_io|io|posix|nt|os|mmap)\.|builtins\.open$|open$|PIL\.Image\.open|numpy\.(load|fromfile|memmap|loadtxt)|torch\.load"
    r"|torch\.serialization\.load|lmdb\.|_?pickle\.load$|shutil\."
)
_READING_LIBRARIES = frozenset(
    [
        "h5py",
        "zarr",
        "pyarrow",
        "lmdb",
        "tarfile",
        "gzip",
        "bz2",
        "lzma",
        "_compression",
        "zipfile",
        "tables",
        "netCDF4",
        "fsspec",
        "s3fs",
        "gcsfs",
        "urllib",
        "http",
        "urllib3",
        "requests",
        "aiohttp",
        "boto3",
        "botocore",
        "s3transfer",
        "socket",
        "ssl",
        "smart_open",
        "sqlite3",
        "webdataset",
        "streaming",
        "datasets",
        "pathlib",
        "tifffile",
        "rasterio",
        "nibabel",
        "pydicom",
        "compression",
    ]
)
_TRANSFORM_LIBRARIES = frozenset(
    ["albumentations", "imgaug", "kornia", "augly", "torchaudio", "scipy", "skimage", "cv2"]
)
_TRANSFORMS = re.compile(r"transform|augment|\baug\b|\btfms?\b|pipeline|preproc", re.IGNORECASE)
_LOGGING_LIBRARIES = frozenset(
    [
        "logging",
        "csv",
        "tensorboard",
        "tensorboardX",
        "wandb",
        "mlflow",
        "neptune",
        "comet_ml",
        "clearml",
        "aim",
        "matplotlib",
        "tqdm",
        "rich",
        "warnings",
    ]
)
_LOGGING = re.compile(
    r"(builtins\.)?print$|torch\.(serialization\.)?save$|json\.dumps?$|pickle\.dumps?$|_pickle\.dumps?$"
    r"|(os|posix)\.(fsync|fdatasync|write|replace|rename|makedirs)|numpy\.(save|savez)"
    r"|_io\.\w+\.(write|flush|close|writelines)|(builtins|io|_io)\.open$|shutil\.|.*[Ww]riter\.add_\w+$"
)
_SYNC = re.compile(r"(.*Tensor(Base)?|\?)\.(item|cpu|tolist|numpy)$|torch\.cuda\.synchronize")
_COPIES = re.compile(r"(.*Tensor(Base)?|\?)\.(to|cuda|pin_memory)$")
_PROCESSORS = re.compile(r"(image_|video_|feature_|^)(processing|processor|extraction)")


_PASSING = {"unpickling": "pickling", "queue": "pickling", "sharing": "shared-memory"}


def spot_of(frames: list[Frame], is_worker: bool, thread: str = "") -> Spot:
    """Say what a thread was doing.

    Args:
        frames: of its stack, the innermost first.
        is_worker: whether the process is a worker of a torch loader.
        thread: its name; "": the main one.
    """
    if thread and all(frame.library for frame in frames):
        return _of_thread(frames)
    place, boundary = _part(frames, is_worker)
    if is_worker and place == "loop":  # a worker has no loop: it begins or ends, or this is the user's thread
        place = "sample" if thread else "starting"
    if place in ("idle", "waiting", "starting", "feed", *_PASSING):
        part, kind = ("passing", _PASSING[place]) if place in _PASSING else (place, place)
        return Spot(part, kind, function=frames[0].name if frames else "", library="torch")
    inner = frames[:boundary]
    user = next((frame for frame in inner if not frame.library), None)
    text = user.text if user is not None else ""
    lead = inner[0] if inner else None
    call = called(user, text) if user is not None else ""
    if user is None and lead is not None:
        call = called(lead, lead.text)
    if place == "loop":
        kind = _of_loop(inner, user, text, call)
    else:
        kind = _of_sample(place, inner, user, text, call, is_worker)
    line = user.line if user is not None else 0
    if kind == "python" and user is lead and user is not None and (loop := _video_loop(user)) is not None:
        (line, text, call), kind = loop, "video"
    library = lead.library if lead is not None else ""
    if not library and call:
        head = call.split(".", maxsplit=1)[0]
        library = head if head in sys.modules and not _is_users(head) else ""
    if kind == "video" and user is None:  # the dataset that decodes, whose name says more than a codec's
        lead = next((frame for frame in reversed(inner) if frame.library != "torch"), lead)
        library = lead.library if lead is not None else ""
    named = user or lead
    return Spot(
        place,
        kind,
        user.file if user is not None else "",
        line,
        _short(text),
        named.name if named is not None else "",
        library,
        call,
    )


def _of_thread(frames: list[Frame]) -> Spot:
    """Say what a library's thread was doing: mostly one that passes batches between processes."""
    lead = frames[0]
    if lead.library in ("threading", "socket", "selectors", "concurrent", "queue", "_weakrefset"):
        return Spot("idle", "idle")
    outer = {(frame.library, frame.code.co_name) for frame in frames}
    shares = any(frame.base == "reductions.py" and frame.library == "torch" for frame in frames)
    if ("multiprocessing", "_feed") in outer:
        waits = lead.base == "connection.py" and lead.code.co_name in ("_recv", "accept")
        kind = "idle" if waits else "shared-memory" if shares else "pickling"
        return Spot("passing", kind, function=lead.name, library=lead.library)
    if any(frame.base == "pin_memory.py" for frame in frames):
        idle = lead.library in ("multiprocessing", "selectors") and not shares
        kind = "idle" if idle and lead.code.co_name not in ("loads", "_recv") else "copies"
        return Spot("passing", kind, function=lead.name, library=lead.library)
    return Spot("idle", "idle", function=lead.name, library=lead.library)


def _is_users(module: str) -> bool:
    file = getattr(sys.modules.get(module), "__file__", None)
    return bool(file) and not library_of(str(file))


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 4]} ..."


def _part(frames: list[Frame], is_worker: bool) -> tuple[str, int]:
    """Return the part of the loop, and the number of frames that are inside it."""
    pickled = shared = False
    for place, frame in enumerate(frames):
        shared = shared or frame.base == "reductions.py"
        pickled = pickled or (frame.library == "multiprocessing" and frame.code.co_name in ("loads", "dumps"))
        if frame.library == "fastload":
            part = _of_ours(frame, frames[:place])
            if part:
                return part, place
        if frame.library != "torch" or "utils/data" not in frame.file.replace("\\", "/"):
            continue
        if frame.base == "fetch.py":
            return ("collate" if "collate_fn" in frame.text else "sample"), place
        if frame.base == "worker.py" and frame.code.co_name == "_worker_loop":
            text = frame.text
            idle = "index_queue" in text or "is_alive" in text
            return ("idle" if idle else "queue" if "data_queue" in text else "starting"), place
        if frame.base == "dataloader.py" and not is_worker:
            part = _of_dataloader(frame, pickled or "loads" in frames[0].text, shared)
            if part:
                return part, place
    return "loop", len(frames)


def _of_ours(frame: Frame, inner: list[Frame]) -> str:
    if frame.base == "script_child.py" and frame.name.startswith(
        ("Feed.", "Phases._begin_feed", "Phases._wait")
    ):
        return "feed"
    if frame.base != "epochs.py" or frame.code.co_name != "__next__":
        return ""
    if all(each.library for each in inner):
        return "waiting"
    return "collate" if any("collate" in each.text for each in inner) else "sample"


_STARTING = frozenset(("_get_iterator", "__iter__", "__init__", "_reset", "_shutdown_workers", "__del__"))
_WAITING = frozenset(("_try_get_data", "_get_data", "_get_shared_seed"))


def _of_dataloader(frame: Frame, pickled: bool, shared: bool) -> str:
    name = frame.code.co_name
    if name in _STARTING and "DataLoader" in frame.name + frame.file:
        return "starting"
    if name in _WAITING:
        return "sharing" if shared else "unpickling" if pickled else "waiting"
    return "queue" if name == "__next__" else ""


def _of_sample(
    place: str, inner: list[Frame], user: Frame | None, text: str, call: str, is_worker: bool
) -> str:
    """Return the kind of work inside the dataset or the collate function."""
    if any(frame.library == "transformers" and _PROCESSORS.search(frame.base) for frame in inner):
        return "processor"
    if waits_for_lock(inner, user, text):
        return "lock"
    if call in ("time.sleep", "asyncio.sleep") and place == "sample":
        return "sleep"
    if place == "collate":
        stacks = bool(inner) and inner[0].library == "torch" and "collate_tensor_fn" in inner[0].name
        return "shared-memory" if stacks and is_worker else "collate"
    libraries = [frame for frame in inner[: inner.index(user)] if frame.library] if user in inner else inner
    return _of_libraries(libraries, call) or ("transform" if _is_transform(inner, user) else "python")


def _of_libraries(libraries: list[Frame], call: str) -> str:
    """Return the kind of work by the libraries that the user's line has called; "" if they do not say."""
    if _VIDEO.match(call) or any(_is_of_video(frame) for frame in libraries):
        return "video"  # also where the decoder reads its file by a library
    for frame in libraries:
        if frame.library == "PIL":
            return _of_pillow(frame, libraries)
        if frame.library in _READING_LIBRARIES or frame.base in ("npyio.py", "serialization.py"):
            return "reading"
        if _DECODERS.match(f"{frame.library}.{frame.code.co_name}") or "torchvision/io/" in frame.file:
            return "decode"
    if _DECODERS.match(call):
        return "decode"
    if call.startswith("PIL.Image.Image.") or (call.startswith("PIL.") and "open" not in call):
        return (
            "decode"
            if call.endswith((".load", ".convert", ".tobytes", ".__array_interface__"))
            else "transform"
        )
    return "reading" if _READERS.match(call) or call.split(".")[0] in _READING_LIBRARIES else ""


@functools.lru_cache(256)
def _loops_of(file: str) -> tuple[tuple[int, int, str], ...]:
    """Return first line, last line and the iterated expression of a file's loops over calls."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    loops = [node for node in ast.walk(tree) if isinstance(node, ast.For) and isinstance(node.iter, ast.Call)]
    return tuple((node.lineno, node.end_lineno or node.lineno, ast.unparse(node.iter)) for node in loops)


def _video_loop(user: Frame) -> tuple[int, str, str] | None:
    """Return line, expression and call of the loop over a video's frames in which a frame is.

    An iterator that is written in C runs between two bytecodes, so a tick comes late, in the loop's body.
    """
    for first, last, text in _loops_of(user.file):
        if first <= user.line <= last and _VIDEO.match(call := called(user, text)):
            return first, text, call
    return None


def _is_of_video(frame: Frame) -> bool:
    if "audio" in frame.base:
        return False
    named = f"{frame.library}.{frame.code.co_name}"
    return bool(_VIDEO.match(named) or _VIDEO_FILES.search(frame.file.replace("\\", "/")))


def _of_pillow(lead: Frame, libraries: list[Frame]) -> str:
    pillow = [frame for frame in libraries if frame.library == "PIL"]
    if any(frame.base == "ImageFile.py" and frame.code.co_name in ("load", "load_end") for frame in pillow):
        return "decode"
    if lead.library == "PIL" and lead.code.co_name in ("convert", "copy", "tobytes", "__array_interface__"):
        return "decode"  # mostly what follows load(): a copy, or another mode
    if any(frame.code.co_name == "open" for frame in pillow) or lead.base.endswith("ImagePlugin.py"):
        return "reading"
    return "transform"


def _is_transform(inner: list[Frame], user: Frame | None) -> bool:
    """Whether any frame was called as a transform: by a library of transforms, or by a name that says so."""
    for frame in inner:
        file = frame.file.replace("\\", "/")
        if frame.library in _TRANSFORM_LIBRARIES or "torchvision/transforms" in file or "timm/data" in file:
            return True
    for frame in inner:
        if frame.library or (frame is user and frame.code.co_name in ("__getitem__", "__iter__")):
            continue
        if frame.code.co_name in ("__getitem__", "__getitems__", "__iter__"):
            return bool(_TRANSFORMS.search(frame.text.split("(")[0]))
        if _TRANSFORMS.search(frame.name) or "/transforms" in frame.file or "augment" in frame.base:
            return True
    return False


_LOCKS = ("lock", "Lock", "RLock", "Semaphore", "BoundedSemaphore", "Condition", "SemLock", "FileLock")


def waits_for_lock(inner: list[Frame], user: Frame | None, text: str) -> bool:
    """Whether the line takes a lock; it may still be that the thread does not wait for it."""
    lead = inner[0] if inner else None
    if lead is None:
        return False
    if lead.library == "multiprocessing" and lead.base == "synchronize.py":
        return True
    if lead.library in ("filelock", "portalocker", "fasteners"):
        return True
    if lead.library == "threading":
        return any(name in lead.name for name in ("Lock", "Semaphore", "Condition", "wait"))
    if user is None or user is not lead:
        return False
    return type(object_of(user, text)).__name__ in _LOCKS or "flock(" in text or "lockf(" in text


def _of_loop(inner: list[Frame], user: Frame | None, text: str, call: str) -> str:
    """Return the kind of work outside ``next()``."""
    if _SYNC.match(call) or (re.match(r"(float|int|bool)\(", text) and "loss" in text):
        return "sync"
    if _COPIES.match(call):
        return "copies"
    for frame in inner[: inner.index(user)] if user in inner else inner:
        if frame.library in _LOGGING_LIBRARIES or frame.base in ("_tensor_str.py", "serialization.py"):
            return "logging"
        if frame.library == "json" or (frame.library == "torch" and "tensorboard" in frame.file):
            return "logging"
    if _LOGGING.match(call):
        return "logging"
    return "sync" if user is not None and _converts(inner, user) else "step"


_CONVERTS = re.compile(r"\.(item|cpu|tolist|numpy)\(")


def _converts(inner: list[Frame], user: Frame) -> bool:
    """Whether the line computes something small for a call of ``.item()`` or the like, without a model."""
    if _CONVERTS.search(linecache.getline(user.file, user.line, user.frame.f_globals)) is None:
        return False
    models = ("torch/nn/", "torch/optim/", "torch/autograd/")
    return not any(part in frame.file.replace("\\", "/") for frame in inner for part in models)


# ---- What is worked on ------------------------------------------------------------------------------


def picture_of(frames: list[Frame]) -> tuple[str, int, int, str] | None:
    """Return format, width, height and file name of the picture that Pillow decodes; None if it does not."""
    for frame in frames:
        if frame.library == "PIL" and frame.base == "ImageFile.py" and frame.code.co_name == "load":
            picture = frame.local("self")
            size = getattr(picture, "_size", None)
            if not isinstance(size, tuple) or len(size) != 2:
                return None
            name = getattr(picture, "filename", "")
            kind = type(picture).__dict__.get("format") or "?"
            return (
                str(kind),
                int(size[0]),
                int(size[1]),
                str(name) if isinstance(name, (str, os.PathLike)) else "",
            )
    return None


def container_of(frames: list[Frame]) -> str:
    """Say how the array that is read is stored: "h5py, chunks of (50, 64, 64), gzip"; "" if not known."""
    for frame in frames:
        is_array = frame.library in ("h5py", "zarr") and frame.code.co_name in ("__getitem__", "read_direct")
        if not is_array:
            continue
        array = frame.local("self")
        try:
            chunks, packed = array.chunks, array.compression if frame.library == "h5py" else "compressed"
        except Exception:  # the file may have been closed, or the class is another
            continue
        if chunks:
            return f"{frame.library}, chunks of {tuple(map(int, chunks))}, {packed or 'not compressed'}"
    return ""
