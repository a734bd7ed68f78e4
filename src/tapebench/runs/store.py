"""Runs that last: directories with tables, checkpoints and a marker that says they are whole.

A run is a directory named by its id, `main/dqn/fps30/s07`:

    spec.json         the settings; a run is only resumed with the same ones
    provenance.json   versions, machine, revision, wall-clock
    eval.parquet      one row per episode, at the checkpoints that count
    curve.parquet     means per rule, at every checkpoint
    train.parquet     what training reported
    checkpoints/      arrays (safetensors) and a manifest (JSON)
    summary.json      the run in a few numbers
    done.json         the marker: names, sizes and hashes of the files above

Every file is written aside and renamed, so it is the old one or the whole new one. The marker comes
last: a run without it is unfinished and no reader counts it. A run with a marker counts if its
files are what the marker says; `damage` is the one definition of that, for all who read results or
plan them. One writer at a time holds the directory's lock, which the system lets go of when the
writer dies.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tapebench.base.files import (
    PARQUET,
    Columns,
    DamageError,
    file_hash,
    lock,
    read_object,
    read_table,
    refuse_links,
    remove_partial_files,
    user_cache,
    write_bytes,
    write_json,
    write_table,
)

SCHEMA = 1
MARKER = "done.json"
LOG = "log.txt"
"""What a run's process printed."""
TABLES = ("eval", "curve", "train")
"""What runs hold as Parquet, each in a file of that name."""
SMALL = 4 << 20
"""Bytes up to which the content of a table or a JSON file is compared with the marker whenever a
run is read."""
MAX_CHECKPOINT = 4 << 30

_FILE = re.compile(
    r"(spec|provenance|summary|done)\.json|(eval|curve|train)\.parquet|log\.txt"
    r"|checkpoints/[0-9]{12}\.(json|safetensors)"
)
"""Files of a run that travel from one directory to another."""

_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,79}")


@dataclass(frozen=True, order=True)
class RunId:
    """Which run: experiment, agent, split and training seed."""

    experiment: str
    agent: str
    split: str
    seed: int

    def __post_init__(self) -> None:
        for name in ("experiment", "agent", "split"):
            part = getattr(self, name)
            if not _PART.fullmatch(part):
                raise ValueError(
                    f"{name} {part!r} cannot name a directory: use letters, digits and . _ + -"
                )
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"a seed is an integer from 0 to {2**32 - 1}, not {self.seed}")

    def __str__(self) -> str:
        return f"{self.experiment}/{self.agent}/{self.split}/s{self.seed:02d}"


def parse_id(text: Any) -> RunId:
    """The id that a text like `main/dqn/fps30/s07` stands for. It may come from others."""
    parts = text.split("/") if isinstance(text, str) else []
    if len(parts) != 4 or not re.fullmatch(r"s[0-9]{2,10}", parts[3]):
        raise ValueError(f"{text!r} is not the id of a run, like main/dqn/fps30/s07")
    experiment, agent, split, seed = parts
    return RunId(experiment, agent, split, int(seed[1:]))


@dataclass(frozen=True)
class Run:
    """One run's directory, open for writing. Get it from `open_run`."""

    path: Path
    spec: dict[str, Any]
    note: str = ""
    """Why an unfinished run was dropped, if it was."""

    @property
    def is_done(self) -> bool:
        """Whether it has its marker. It is sound then: `open_run` has seen to that."""
        return (self.path / MARKER).is_file()

    def begin_anew(self) -> None:
        """Delete all results, the marker first; the spec stays."""
        _clear(self.path)
        write_json(self.path / "spec.json", self.spec)

    def write(self, name: str, table: Columns) -> None:
        """Replace a table: `eval`, `curve` or `train`."""
        write_table(self.path / f"{name}.parquet", table)

    def extend(self, name: str, table: Columns) -> None:
        """Add the rows of a checkpoint to a table; rows from that step on are replaced.

        A run that was killed resumes from an earlier checkpoint and writes its later rows again,
        so rows beyond the checkpoint do not count.
        """
        path = self.path / f"{name}.parquet"
        if path.is_file():
            stored = read_table(path)
            if "seating" in table:  # rows that do not name theirs are of the first
                stored.setdefault("seating", np.ones(len(stored["step"]), np.int8))
            keep = stored["step"] < table["step"].min()
            table = {key: np.concatenate([stored[key][keep], table[key]]) for key in table}
        write_table(path, table)

    def read(self, name: str) -> dict[str, np.ndarray]:
        """A table as it was last written."""
        return read_table(self.path / f"{name}.parquet")

    def save_checkpoint(self, step: int, arrays: Columns, about: Mapping[str, Any]) -> None:
        """Write a training state; older ones are dropped once it is written.

        `about` is what must be the same for a checkpoint to be of use (agent, configuration,
        versions): `load_checkpoint` compares it.
        """
        from safetensors.numpy import save

        folder = self.path / "checkpoints"
        folder.mkdir(exist_ok=True)
        data = save({name: np.asarray(array, order="C") for name, array in arrays.items()})
        name = f"{step:012d}"
        write_bytes(folder / f"{name}.safetensors", data)
        manifest = {
            "schema": SCHEMA,
            "step": step,
            "size": len(data),
            "sha256": hashlib.sha256(data).hexdigest(),
            "about": dict(about),
        }
        write_json(folder / f"{name}.json", manifest)
        for old in folder.iterdir():
            if _FILE.fullmatch(f"checkpoints/{old.name}") and old.stem < name:
                old.unlink(missing_ok=True)

    def load_checkpoint(
        self, about: Mapping[str, Any] | None = None
    ) -> tuple[int, dict[str, np.ndarray]] | None:
        """The latest complete training state, or None; see `load_checkpoint`."""
        return load_checkpoint(self.path, about)

    def receive(self, files: Mapping[str, bytes]) -> None:
        """Store the files that `read_files` read from a copy of this run; checked, marker last."""
        for name in files:
            if not _FILE.fullmatch(name):
                raise ValueError(f"{name!r} is not a file of a run")
        marker = json.loads(files[MARKER]) if MARKER in files else {"files": {}}
        for name, about in marker["files"].items():
            if hashlib.sha256(files.get(name, b"")).hexdigest() != about["sha256"]:
                raise ValueError(f"{name} of {self.spec['id']} is not what its marker says")
        (self.path / "checkpoints").mkdir(exist_ok=True)
        for name in sorted(files, key=lambda name: (name == MARKER, name)):
            write_bytes(self.path / name, files[name])
        received = {name.split("/")[1] for name in files if name.startswith("checkpoints/")}
        for old in (self.path / "checkpoints").iterdir():
            if MARKER in files and old.name not in received:
                old.unlink()

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Write the summary, then the marker with the hash of every file."""
        write_json(self.path / "summary.json", summary)
        mark(self.path)


@contextmanager
def open_run(
    root: Path, run_id: RunId, spec: Mapping[str, Any], *, anew: bool = False
) -> Iterator[Run]:
    """Lock the run's directory to write into it; `BusyError` if another process has.

    An unfinished run is resumed if its `spec` is the same; another is refused. `anew` drops what
    is stored, and so does damage: a run whose files are not what its marker says starts over.
    """
    path = root / str(run_id)
    refuse_links(path)
    path.mkdir(parents=True, exist_ok=True)
    with lock(path / ".lock", f"another process is writing {run_id}: wait for it, or stop it"):
        run = Run(path, canonical_spec(run_id, spec))
        if anew:
            run.begin_anew()
        remove_partial_files(path)
        stored = trusted_spec(path)
        if stored is not None and (changed := differences(path, run_id, spec)):
            raise ValueError(
                f"{run_id} was begun with another {', '.join(changed)}: "
                "choose another --experiment, or replace it with --anew"
            )
        if stored is None and os.path.lexists(path / "spec.json") and not has_marker(path):
            run = replace(run, note=f"{path / 'spec.json'} is damaged")
        if stored is None or (has_marker(path) and damage(path)):
            run.begin_anew()
        yield run


def _clear(path: Path) -> None:
    """Drop the files of a run; the marker goes first: a run that is torn down is not done.

    Files that are not named as ours stay.
    """
    files = [
        file
        for file in (*path.glob("*"), *path.glob("checkpoints/*"))
        if _FILE.fullmatch(name := file.relative_to(path).as_posix()) and name != LOG
    ]
    for file in sorted(files, key=lambda file: file.name != MARKER):
        if file.is_dir() and not file.is_symlink():
            shutil.rmtree(file)
        else:
            file.unlink()


def canonical_spec(run_id: RunId, spec: Mapping[str, Any]) -> dict[str, Any]:
    """The spec as `spec.json` holds it. Through JSON and back: tuples become lists."""
    return dict(json.loads(json.dumps({"id": str(run_id), **spec})))


def differences(path: Path, run_id: RunId, spec: Mapping[str, Any]) -> list[str]:
    """Names of the settings in which the run in `path` differs from `spec`.

    Options are a way to a config: where that is the same, it does not matter which were named.
    """
    stored, requested = read_object(path / "spec.json"), canonical_spec(run_id, spec)
    differing = {
        key for key in stored.keys() | requested.keys() if stored.get(key) != requested.get(key)
    }
    if stored.get("config") is not None and "config" not in differing:
        differing.discard("options")
    return sorted(differing)


def result_hash(path: Path) -> str:
    """Content hash of a finished run's summary; identifies the run across copies."""
    summary = json.dumps(read_object(path / "summary.json"), sort_keys=True)
    return hashlib.sha256(summary.encode()).hexdigest()[:16]


def mark(path: Path) -> None:
    """Write the marker into a run's directory: from now on it is finished."""
    write_json(path / MARKER, marker(path))


def marker(path: Path) -> dict[str, Any]:
    """What a run's marker says: the size and the hash of each of its files."""
    files = {}
    for file in sorted(path.rglob("*")):
        name = file.relative_to(path).as_posix()
        is_ours = file.suffix in (".json", ".parquet", ".safetensors") and name != MARKER
        if is_ours and file.is_file() and not file.name.startswith("."):
            files[name] = {"size": file.stat().st_size, "sha256": file_hash(file)}
    return {"schema": SCHEMA, "files": files}


def read_files(path: Path) -> dict[str, bytes]:
    """The files of a run by name, to be copied to another directory."""
    names = [file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file()]
    return {name: (path / name).read_bytes() for name in sorted(names) if _FILE.fullmatch(name)}


def has_checkpoint(path: Path) -> bool:
    """Whether a run has a checkpoint; of published runs only the first seeds do."""
    return any((path / "checkpoints").glob("[0-9]*.json"))


def no_checkpoint(path: Path) -> str:
    """Message that a run has no checkpoint, and what to do: name another seed, or train."""
    others = [other for other in sorted(path.parent.glob("s*")) if has_checkpoint(other)]
    if is_finished(path) and others:
        return (
            f"{path} keeps no checkpoint, as of published runs only the first seeds do: "
            f"name one that does, like {others[0]}"
        )
    if is_finished(path):
        return (
            f"{path} keeps no checkpoint, nor does another seed, as of many runs that come with "
            "the package: train the agent yourself with tape train"
        )
    return f"{path} holds no checkpoint yet: tape train {shlex.quote(str(path))} resumes it"


def load_checkpoint(
    path: Path, about: Mapping[str, Any] | None = None
) -> tuple[int, dict[str, np.ndarray]] | None:
    """The latest complete training state in a run's directory, or None if there is none.

    A file of other size or content than its manifest says is refused, and so is a state that was
    made with something else than `about` says.
    """
    folder = path / "checkpoints"
    manifests = sorted(folder.glob("[0-9]*.json"), reverse=True) if folder.is_dir() else []
    if not manifests:
        return None
    file = manifests[0].with_suffix(".safetensors")
    manifest = read_object(manifests[0])
    for key, kind in (
        ("schema", int),
        ("step", int),
        ("size", int),
        ("sha256", str),
        ("about", dict),
    ):
        if not isinstance(manifest.get(key), kind):
            raise DamageError(f"{manifests[0]} is not a checkpoint manifest: it has no {key}")
    if manifest["schema"] != SCHEMA:
        raise DamageError(f"{manifests[0]} is of schema {manifest['schema']}, not {SCHEMA}")
    if not 0 <= manifest["step"] < 2**31:
        raise DamageError(f"{manifests[0]} is of step {manifest['step']}, which no run reaches")
    if about is not None:
        expected = json.loads(json.dumps(dict(about)))
        for key in sorted(expected):
            if expected.get(key) != manifest["about"].get(key):
                raise ValueError(
                    f"the checkpoint in {path} was made with another {key} "
                    f"({manifest['about'].get(key)!r}, not {expected.get(key)!r}): "
                    f"tape train {shlex.quote(str(path))} --anew starts over"
                )
    return manifest["step"], _read_tensors(file, manifest["size"], manifest["sha256"])


def _read_tensors(file: Path, size: int, digest: str) -> dict[str, np.ndarray]:
    from safetensors import SafetensorError
    from safetensors.numpy import load

    if not file.is_file():
        raise DamageError(f"{file} is missing")
    if file.stat().st_size != size or size > MAX_CHECKPOINT:
        raise DamageError(f"{file} is damaged: {file.stat().st_size} bytes instead of {size}")
    data = file.read_bytes()
    if hashlib.sha256(data).hexdigest() != digest:
        raise DamageError(f"{file} is damaged: its content is not what its manifest says")
    try:
        return dict(load(data))
    except SafetensorError as error:
        raise DamageError(f"{file} is damaged: {error}") from None


def has_marker(path: str | Path) -> bool:
    """Whether there is a marker, whatever is in it."""
    return os.path.lexists(f"{path}{os.sep}{MARKER}")


def is_finished(path: str | Path) -> bool:
    """Whether the run in a directory is finished and sound: whether it counts."""
    return has_marker(path) and damage(path) is None


def damage(path: str | Path, *, thorough: bool = False) -> str | None:
    """What is wrong with a run that has a marker; None if it is sound.

    Every file must be there with the size that the marker says, tables and JSON with the same
    content, and large tables must begin and end as Parquet does. Only `thorough` compares the
    content of these and of checkpoints too: it reads them all.
    """
    try:
        marker = read_object(Path(path, MARKER))
        files = marker.get("files")
        if marker.get("schema") != SCHEMA or not isinstance(files, dict):
            return f"{MARKER} is not a marker of schema {SCHEMA}"
        if not {"spec.json", "summary.json"} <= files.keys():
            return f"{MARKER} names no spec.json or summary.json"
        for name, about in files.items():
            if reason := _file_damage(str(path), name, about, thorough):
                return reason
        parse_id(read_object(Path(path, "spec.json")).get("id"))
        for name in ("summary.json", "provenance.json"):
            if name in files:
                read_object(Path(path, name))
    except ValueError as error:
        return str(error).replace(f"{path}{os.sep}", "")
    return None


def refuse_damage(path: Path) -> None:
    """`DamageError` if the directory is that of a run that was finished and is damaged now."""
    if has_marker(path) and (reason := damage(path)):
        raise DamageError(f"{path} is damaged ({reason}): {remedy(path)}")


def _file_damage(path: str, name: str, about: Any, thorough: bool) -> str | None:
    """How a file of a run differs from what its marker says of it."""
    size = about.get("size") if isinstance(about, dict) else None
    if not isinstance(size, int) or ".." in name.split("/") or os.path.isabs(name):
        return f"{MARKER} describes no file by {name!r}"
    file = os.path.join(path, name)
    try:
        status = os.stat(file)
        if not stat.S_ISREG(status.st_mode):
            return f"{name} is not a regular file"
        if status.st_size != size:
            return f"{name} has {status.st_size:,} bytes instead of {size:,}"
        if thorough or (name.endswith((".json", ".parquet")) and size <= SMALL):
            if file_hash(Path(file)) != about.get("sha256"):
                return f"{name} is not what was written"
        elif name.endswith(".parquet"):
            with open(file, "rb") as table:
                first = table.read(len(PARQUET))
                table.seek(max(0, size - len(PARQUET)))
                if (first, table.read()) != (PARQUET, PARQUET):
                    return f"{name} is not a whole Parquet file"
    except FileNotFoundError:
        return f"{name} is missing"
    except OSError as error:
        return f"{name} cannot be read: {error.strerror}"
    return None


def remedy(path: Path) -> str:
    """How to remake a damaged run, as a clause."""
    resolved = path.resolve()
    if resolved.is_relative_to(user_cache().resolve()):
        unpacked = user_cache() / resolved.relative_to(user_cache().resolve()).parts[0]
        return f"rm -r {shlex.quote(str(unpacked))} has what comes with the package unpacked again"
    if recorded_spec(path) is not None:
        return f"tape train {shlex.quote(str(path))} makes it again"
    return (
        f"its settings are not stored elsewhere, so rm -r {shlex.quote(str(path))} and repeat "
        "the command that made it"
    )


def recorded_spec(path: Path) -> dict[str, Any] | None:
    """The spec of the run in a directory: `spec.json`, if need be that of another seed.

    Sibling seeds share all other settings. None if neither can be read, or if the directory is
    not named as the run is.
    """
    path = Path(os.path.abspath(path))  # as it is called, wherever links lead
    try:
        run = parse_id("/".join(path.parts[-4:]))
    except ValueError:
        return None
    own = trusted_spec(path)
    if own is not None and own.get("id") == str(run):
        return own
    for other in sorted(path.parent.glob("s*")):
        spec = trusted_spec(other) if is_finished(other) else None
        if spec and replace(parse_id(spec["id"]), seed=run.seed) == run:
            return {**spec, "id": str(run), "seed": run.seed}
    return None


def trusted_spec(path: Path) -> dict[str, Any] | None:
    """`spec.json` of a run, unless its marker says that it was another."""
    try:
        spec = read_object(path / "spec.json")
    except DamageError:
        return None
    try:
        written = read_object(path / MARKER)["files"]["spec.json"]["sha256"]
    except (DamageError, KeyError, TypeError):
        return spec
    return spec if file_hash(path / "spec.json") == written else None
