"""Figures that are drawn when their bytes are asked for, and kept by what they are drawn of.

A `Drawing` is a value: a function that makes a Matplotlib figure, and what it is given. Its files
are the same bytes every time, so they are looked up in the user's cache by a hash of that, of the
code that draws and of Matplotlib's version, and drawn only where nothing is found.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache, cached_property, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec

import numpy as np

from tapebench.base.files import user_cache, write_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

P = ParamSpec("P")

MOST_KEPT = 2000
"""Files in the cache, before the older half is dropped."""

_DIGEST = 32


@dataclass(frozen=True)
class Drawing:
    """A figure that need not have been drawn yet; made by the functions that `drawing` wraps."""

    function: Callable[..., Figure]
    arguments: tuple[Any, ...]
    options: Mapping[str, Any]

    @cached_property
    def figure(self) -> Figure:
        """As Matplotlib has it."""
        return self.function(*self.arguments, **self.options)

    @cached_property
    def key(self) -> str:
        """A hash of all that decides what it looks like."""
        import matplotlib

        digest = hashlib.sha256(matplotlib.__version__.encode())
        digest.update(_source(str(Path(__file__).parent)).encode())
        digest.update(self.function.__qualname__.encode())
        _add(digest, (self.arguments, dict(self.options)))
        return digest.hexdigest()

    def render(self, ending: str) -> bytes:
        """The bytes of an `svg`, a `pdf` or a `png`, without a date."""
        place = user_cache() / "figures" / f"{self.key}.{ending}"
        data = _read(place)
        if data is None:
            data = _draw(self.figure, ending)
            _keep(place, data)
        return data


def drawing(function: Callable[P, Figure]) -> Callable[P, Drawing]:
    """Make a function that draws one that says what would be drawn."""

    @wraps(function)
    def ask(*arguments: P.args, **options: P.kwargs) -> Drawing:
        return Drawing(function, arguments, options)

    return ask


def _draw(figure: Figure, ending: str) -> bytes:
    from tapebench.report.style import styled

    out = io.BytesIO()
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(ending)
    with styled():
        if (engine := figure.get_layout_engine()) is not None:
            # Laying out moves things a little each time: once, so that every file is the same. With
            # "none" instead of None Matplotlib would go on drawing twice, to be laid out.
            engine.execute(figure)
            figure.set_layout_engine(None)
        figure.savefig(out, format=ending, metadata=metadata, dpi=150)
    return out.getvalue()


# The cache. Whatever is wrong with it, figures are drawn all the same.


def _read(path: Path) -> bytes | None:
    try:
        data = path.read_bytes()
    except OSError:
        return None
    digest, body = data[:_DIGEST], data[_DIGEST:]
    return body if hashlib.sha256(body).digest() == digest else None


def _keep(path: Path, data: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, hashlib.sha256(data).digest() + data)
        files = [file for file in path.parent.iterdir() if file.suffix in (".svg", ".pdf")]
        if len(files) > MOST_KEPT:
            for file in sorted(files, key=lambda file: file.stat().st_mtime)[: len(files) // 2]:
                file.unlink(missing_ok=True)
    except (OSError, ValueError):  # a full disk, or a cache that cannot be written
        return


@cache
def _source(folder: str) -> str:
    """A hash of the code that draws: of this folder, and of how tapes are drawn."""
    files = [*sorted(Path(folder).glob("*.py")), Path(folder).parent / "tasks" / "render.py"]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def _add(digest: Any, value: Any) -> None:
    """Add a value to a hash: its kind, its size and its parts, so that no two values look alike."""
    digest.update(type(value).__name__.encode() + b":")
    if isinstance(value, np.ndarray):
        digest.update(f"{value.dtype.str}{value.shape}".encode() + value.tobytes())
    elif is_dataclass(value) and not isinstance(value, type):
        _add(digest, tuple(getattr(value, field.name) for field in fields(value)))
    elif isinstance(value, Mapping):
        digest.update(str(len(value)).encode())
        for key, part in value.items():
            _add(digest, key)
            _add(digest, part)
    elif isinstance(value, (list, tuple)):
        digest.update(str(len(value)).encode())
        for part in value:
            _add(digest, part)
    elif value is None or isinstance(value, (str, bytes, bool, int, float, np.generic)):
        text = repr(value).encode()
        digest.update(str(len(text)).encode() + text)
    else:
        raise TypeError(f"cannot tell {type(value).__name__} apart from others of its kind")
