"""The results that come with the package: groups of runs in a few small files each.

A piece is all seeds of one agent in one experiment on one split. `full-dqn-fps30.json` holds what
their spec, and the summary and provenance of each; `full-dqn-fps30.parquet` one row for each seed,
rule and evaluation that counts; there may be a third, `full-dqn-fps30.safetensors`, with the
parameters of the first seeds. What experiments have measured of a run since, such as its success in
longer episodes, is included. Episodes, training logs and training states are not.

`unpack_runs` restores the directories of the runs, which all commands that read results can read:
`tape report`, `tape reproduce --show`, `tape query`.
"""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from tapebench.base.files import (
    aside,
    file_hash,
    read_json,
    read_table,
    user_cache,
    write_bytes,
    write_text,
)
from tapebench.base.names import one_of
from tapebench.exam.exam import Exam
from tapebench.runs import store

SCHEMA = 1

FOLDER = "data/results"
"""The folder of the pieces in the package."""

CONTESTS = ("full", "long", "inference@2")
"""Tracks on which agents are compared; runs of other tracks belong to experiments."""

MEASURED = re.compile(r"(examined|computed)/[0-9a-f]+/[a-z0-9][a-z0-9.-]*\.json")
"""Files in which experiments store what they measure."""

LEVEL = 19
"""Of compression: pieces are written once and kept for good."""


def pack_runs(paths: Sequence[Path], command: str, folder: Path, policies: int = 0) -> Path:
    """Write finished runs that differ by seed alone as a piece; `command` is what makes them.

    `policies` is the largest number of seeds whose parameters are included: runs that came from
    a piece may have fewer. The same runs give the same bytes. Returns the path of the JSON file.
    """
    paths = sorted(paths, key=lambda path: int(read_json(path / "spec.json")["seed"]))
    specs = [read_json(path / "spec.json") for path in paths]
    shared = [
        {key: value for key, value in spec.items() if key not in ("id", "seed")} for spec in specs
    ]
    runs = specs[0]["id"].rsplit("/", 1)[0]
    if any(other != shared[0] for other in shared[1:]):
        raise ValueError(f"the runs of {runs} were not made with one setting: they make no piece")
    if not all(store.is_finished(path) for path in paths):
        raise ValueError(f"some runs of {runs} are not finished, or damaged")
    name = runs.replace("/", "-").lower()
    files = [str(path / "curve.parquet") for path in paths]
    last = int(shared[0]["last"])
    table = folder / f"{name}.parquet"
    with aside(table) as file, duckdb.connect() as connection:
        connection.execute(
            "copy (select * exclude back from (select *, dense_rank() over "
            "(partition by seed order by step desc) as back "
            "from read_parquet($files, hive_partitioning = false)) "
            f"where back <= {last} order by seed, step, rule) "
            f"to $to (format parquet, compression zstd, compression_level {LEVEL})",
            {"files": files, "to": str(file)},
        )
    document = {
        "schema": SCHEMA,
        "runs": runs,
        "command": command,
        "sha256": file_hash(table),
        "spec": shared[0],
        "seeds": [
            {
                "seed": spec["seed"],
                "summary": read_json(path / "summary.json"),
                "provenance": read_json(path / "provenance.json"),
                "measured": _measured(path),
            }
            for spec, path in zip(specs, paths, strict=True)
        ],
    }
    about = folder / f"{name}.json"
    about.with_suffix(".safetensors").unlink(missing_ok=True)
    if any(checkpoints := [store.load_checkpoint(path) for path in paths[:policies]]):
        learned = {
            path: checkpoint
            for path, checkpoint in zip(paths, checkpoints, strict=False)
            if checkpoint
        }
        document["policies"] = _pack_policies(learned, about.with_suffix(".safetensors"))
    write_text(about, json.dumps(document, allow_nan=False, separators=(",", ":")) + "\n")
    return about


def _measured(path: Path) -> dict[str, Any]:
    """What experiments have measured of a run since it ended, by file below its root."""
    root, run = path.parents[3], store.result_hash(path)
    return {
        name: read_json(file)
        for file in sorted(root.glob(f"*/*/*-{run}*.json"))
        if MEASURED.fullmatch(name := file.relative_to(root).as_posix())
    }


def _pack_policies(
    learned: Mapping[Path, tuple[int, dict[str, np.ndarray]]], file: Path
) -> dict[str, Any]:
    """Write the parameters of runs, from their last checkpoints, into one file; its description."""
    from safetensors.numpy import save

    from tapebench.agents import api

    arrays: dict[str, np.ndarray] = {}
    manifests = []
    for path, (step, state) in learned.items():
        seed = read_json(path / "spec.json")["seed"]
        arrays |= {f"{seed}/{name}": array for name, array in api.learned(state).items()}
        manifest = read_json(path / "checkpoints" / f"{step:012d}.json")
        manifests.append({"seed": seed, "step": step, "about": manifest["about"]})
    write_bytes(file, save(arrays))
    return {"sha256": file_hash(file), "checkpoints": manifests}


def read_piece(about: Path) -> dict[str, Any]:
    """The JSON file of a piece, checked together with its table and what was learned."""
    document = read_json(about)
    try:
        if document["schema"] != SCHEMA:
            raise ValueError(f"{about} is of schema {document['schema']}, not {SCHEMA}")
        sums = {".parquet": document["sha256"]}
        if "policies" in document:
            sums[".safetensors"] = document["policies"]["sha256"]
        for suffix, digest in sums.items():
            if file_hash(about.with_suffix(suffix)) != digest:
                raise ValueError(f"{about.with_suffix(suffix)} is not what {about.name} says")
        learned = document.get("policies", {}).get("checkpoints", [])
        for entry in [*document["seeds"], *learned]:
            _run_id(document, entry)
        for name in [name for entry in document["seeds"] for name in entry["measured"]]:
            if not MEASURED.fullmatch(name):
                raise ValueError(f"{about} has something to write to {name!r}: not a place for it")
    except (KeyError, TypeError, AttributeError, OSError) as error:
        raise ValueError(f"{about} is not a piece of results: {error!r}") from None
    return document


def _run_id(document: Mapping[str, Any], entry: Mapping[str, Any]) -> store.RunId:
    experiment, agent, split = document["runs"].split("/")
    return store.RunId(experiment, agent, split, entry["seed"])


def unpack_runs(pieces: Iterable[Path], root: Path) -> None:
    """Lay out the runs of pieces below `root`, which must not be there yet: all of them or none."""
    root.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{root.name}.", dir=root.parent) as scratch:
        built = Path(scratch) / "runs"
        built.mkdir()
        with duckdb.connect() as connection:
            for about in pieces:
                document = read_piece(about)
                _lay_out_policies(document, about.with_suffix(".safetensors"), built)
                connection.execute(
                    "create or replace temp table piece as "
                    "select * from read_parquet($from, hive_partitioning = false)",
                    {"from": str(about.with_suffix(".parquet"))},
                )
                for entry in document["seeds"]:
                    _lay_out(document, entry, built, connection)
        try:
            built.rename(root)
        except OSError:
            if not root.is_dir():  # else another process was faster, with the same pieces
                raise


def _lay_out_policies(document: Mapping[str, Any], file: Path, root: Path) -> None:
    from safetensors.numpy import load_file

    if "policies" not in document:
        return
    arrays = load_file(file)
    for entry in document["policies"]["checkpoints"]:
        own = f"{entry['seed']}/"
        path = root / str(_run_id(document, entry))
        path.mkdir(parents=True)
        store.Run(path, {}).save_checkpoint(
            entry["step"],
            {name.removeprefix(own): a for name, a in arrays.items() if name.startswith(own)},
            entry["about"],
        )


def _lay_out(
    document: Mapping[str, Any],
    entry: Mapping[str, Any],
    root: Path,
    connection: duckdb.DuckDBPyConnection,
) -> None:
    """Lay out one run, its rows from the table `piece`. Nothing is flushed to disk file by file:
    what counts is the renaming of the whole."""
    run_id = _run_id(document, entry)
    path = root / str(run_id)
    path.mkdir(parents=True, exist_ok=True)
    documents = {
        "spec": {"id": str(run_id), "seed": run_id.seed, **document["spec"]},
        "summary": entry["summary"],
        "provenance": entry["provenance"],
    }
    for name, content in documents.items():
        (path / f"{name}.json").write_text(json.dumps(content))
    for name, content in entry["measured"].items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(json.dumps(content))
    connection.execute(
        "copy (select * from piece where seed = $seed) to $to (format parquet)",
        {"seed": run_id.seed, "to": str(path / "curve.parquet")},
    )
    (path / store.MARKER).write_text(json.dumps(store.marker(path), indent=1) + "\n")


def piece_files(folder: Path | None = None) -> list[Path]:
    """The JSON files of all pieces in a directory, by default those of the package."""
    folder = folder or Path(str(resources.files("tapebench").joinpath(FOLDER)))
    return sorted(folder.glob("*.json")) if folder.is_dir() else []


def runs_of(name: str, exam: Exam) -> Path:
    """The directory of the published runs of an agent on an exam.

    `dqn` is what its track ran, `dqn-conv` also what an experiment with other networks did, and
    `long/ppo` is that of a track. `ValueError` says which exams the agent did sit, or which agents
    there are.
    """
    track, _, agent = name.rpartition("/")
    sat: dict[str, list[tuple[str, Any]]] = {}
    for about in piece_files():
        document = read_json(about)
        experiment, kind, _ = document["runs"].split("/")
        of_track, is_variant, _ = experiment.partition("-networks-")
        is_contest = of_track in (entry.partition("@")[0] for entry in (*CONTESTS, "lite", "core"))
        if is_contest and track in ("", of_track):
            network = document["spec"].get("config", {}).get("network")
            labels = [] if is_variant else [kind]
            labels += [f"{kind}-{network}"] if network else []
            for label in labels:
                sat.setdefault(label, []).append((document["runs"], document["spec"]["exam"]))
    entries = sat[one_of("published agent", agent, sat)]
    found = [runs for runs, identity in entries if identity == exam.identity]
    if not found:
        known = sorted({_in_words(identity) for _, identity in entries})
        raise ValueError(
            f"published:{name} did not sit this exam ({_in_words(exam.identity)}): it sat "
            f"{'; '.join(known)}"
        )
    order = [entry.partition("@")[0] for entry in CONTESTS]
    found.sort(key=lambda runs: [*order, runs.split("/")[0]].index(runs.split("/")[0]))
    return directory() / found[0]


def _in_words(identity: Mapping[str, Any]) -> str:
    size = f"L = {identity['length']}, H = {identity['horizon']}"
    return f"{identity['split']}, {size}, {identity['episodes']} tapes per rule"


def directory() -> Path:
    """A results directory with all runs that come with the package.

    It is made once in the user's cache; another version of the results gets another one.
    """
    shipped = piece_files()
    if not shipped:
        raise ValueError("this version comes without results: tape bench makes some")
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in shipped)).hexdigest()
    root = user_cache() / f"results-{digest[:16]}"
    if not root.is_dir():
        unpack_runs(shipped, root)
    return root


def is_directory(root: Path) -> bool:
    """Whether a results directory is one that `directory` made."""
    return root.parent == user_cache() and root.name.startswith("results-")


def difference(published: Path, remade: Path) -> str | None:
    """How a remade run differs from the published one, in a sentence; None if in no bit."""
    remade_rows, published_rows = (
        read_table(path / "curve.parquet") for path in (remade, published)
    )
    shared = np.isin(remade_rows["step"], published_rows["step"])
    order = [
        np.lexsort((table["rule"][rows], table["step"][rows]))
        for table, rows in ((remade_rows, shared), (published_rows, slice(None)))
    ]
    names = [name for name, column in published_rows.items() if column.dtype.kind == "f"]
    pairs = {
        name: (remade_rows[name][shared][order[0]], published_rows[name][order[1]])
        for name in names
        if name in remade_rows and shared.sum() == len(published_rows[name])
    }
    if len(pairs) < len(names):
        return "it holds other rows or columns"
    apart = {name: np.abs(a - b) for name, (a, b) in pairs.items()}
    count = sum(int((gap > 0).sum()) for gap in apart.values())
    if not count:
        return None
    total = sum(gap.size for gap in apart.values())
    a, b = (side.mean(dtype=float) for side in pairs["success"])
    return f"{count:,} of {total:,} figures differ; mean success is {a:.4f}, was {b:.4f}"


def circumstances(published: Path, remade: Path) -> list[str]:
    """Differences in software and processor between two runs, revisions aside."""
    before, after = (read_json(path / "provenance.json") for path in (published, remade))
    changes = []
    for group in ("versions", "machine"):
        for name in sorted(before[group].keys() | after[group].keys()):
            was, is_now = before[group].get(name), after[group].get(name)
            if was != is_now and name not in ("cores", "torch"):
                changes.append(f"{name} is {is_now}, was {was}")
    return changes
