"""A structure-aware fuzzer for what comes from others: bundles, runs, agents' messages, datasets.

    python tests/support/fuzz.py --seconds 3600     # `make fuzz`; the suite takes some seconds

Every case is made from a seed that is printed when it fails, and can be tried again with `--seed`.
"""

import argparse
import hashlib
import json
import os
import random
import shutil
import sys
import tempfile
import time
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from safetensors.numpy import save

from stored_runs import store_run, store_runs
from tapebench.datasets import croissant
from tapebench.datasets import store as datasets
from tapebench.datasets.check import check
from tapebench.datasets.manifest import read_manifest
from tapebench.datasets.spec import Spec
from tapebench.exam import bundle, external
from tapebench.exam.exam import make_exam
from tapebench.report import contests
from tapebench.runs import compare, evaluation, store
from tapebench.runs.results import load_results
from tapebench.tasks import splits

ODD = (
    None,
    True,
    -1,
    0,
    1,
    2**31,
    2**63,
    10**40,
    1.5,
    float("nan"),
    float("inf"),
    "",
    "x",
    "\x1b[2J",
)
ODD += (
    "../../etc/passwd",
    "constructor",
    "\ud800",
    "9" * 400,
    [],
    {},
    [[]],
    {"": None},
    [None] * 9,
)
"""Values that are wrong nearly everywhere."""

EXAM = {"length": 8, "horizon": 4, "episodes": 2, "rules": [0, 30, 204]}


@dataclass
class Tally:
    """What was tried, and what came of it."""

    tried: dict[str, int] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)

    def count(self, what, is_refused):
        self.tried[what] = self.tried.get(what, 0) + 1
        self.refused[what] = self.refused.get(what, 0) + is_refused

    def __str__(self):
        return "; ".join(
            f"{what}: {number} tried, {self.refused[what]} refused"
            for what, number in self.tried.items()
        )


def places(document, path=()):
    """Every place in a document."""
    yield path
    items = (
        document.items()
        if isinstance(document, dict)
        else enumerate(document)
        if isinstance(document, list)
        else ()
    )
    for key, value in items:
        yield from places(value, (*path, key))


def spoil(document, chance):
    """The document with something odd in it, or without something."""
    document = json.loads(json.dumps(document))
    path = chance.choice(list(places(document)))
    if not path:
        return chance.choice(ODD)
    parent = document
    for key in path[:-1]:
        parent = parent[key]
    how = chance.randrange(4)
    if how == 0 and isinstance(parent, dict):
        del parent[path[-1]]
    elif how == 1 and isinstance(parent, list):
        parent.append(parent[path[-1]])
    elif how == 2 and isinstance(parent[path[-1]], int):
        parent[path[-1]] += chance.choice((-1, 1, 2**31, -(2**31)))
    else:
        parent[path[-1]] = chance.choice(ODD)
    return document


def is_one_line(refusal):
    """A refusal is one line, whatever it was made of."""
    if "\n" in str(refusal):
        raise AssertionError(f"more than a line: {refusal}")
    return True


def spoil_bytes(data, chance):
    """The bytes with a bit flipped, a part cut, doubled or put in."""
    data = bytearray(data)
    position = chance.randrange(len(data) + 1)
    how = chance.randrange(4)
    if how == 0 and data:
        data[position % len(data)] ^= 1 << chance.randrange(8)
    elif how == 1:
        del data[position:]
    elif how == 2:
        data[position:position] = data[: chance.randrange(64)]
    else:
        data[position:position] = chance.randbytes(chance.randrange(1, 64))
    return bytes(data)


class Bundles:
    """Files that are nearly bundles: refused with a `BundleError`, or the very same result."""

    def __init__(self, place):
        self.path = place / "b.tape"
        evaluation.evaluate("flip-ones", make_exam(**EXAM)).write_bundle(self.path)
        self.data = self.path.read_bytes()
        size = int.from_bytes(self.data[:8], "little")
        self.header = json.loads(self.data[8 : 8 + size])
        self.rest = self.data[8 + size :]
        self.success = bundle.verify(self.path).episodes.success

    def attempt(self, chance):
        how = chance.randrange(4)
        if how == 0:
            data = spoil_bytes(self.data, chance)
        elif how == 1:
            data = self.made(spoil(self.header, chance))
        else:
            header = json.loads(json.dumps(self.header))
            text = json.dumps(spoil(json.loads(header["__metadata__"]["tape_bundle"]), chance))
            header["__metadata__"] = {"tape_bundle": text, "digest": bundle._digest(text)}
            data = self.made(header) if how == 2 else save({}, header["__metadata__"])
        self.path.write_bytes(data)
        try:
            replayed = bundle.verify(self.path)
        except bundle.BundleError as refusal:
            return is_one_line(refusal)
        assert np.array_equal(replayed.episodes.success, self.success), (
            "another result was accepted"
        )
        return False

    def made(self, header):
        head = json.dumps(header).encode()
        return len(head).to_bytes(8, "little") + head + self.rest


class Runs:
    """Run directories with damage, of which every reader says so or goes on with the rest."""

    def __init__(self, place):
        self.sound, self.root = place / "sound", place / "runs"
        store_runs(self.sound, seeds=2, agents=("first-one", "any-one"))
        store_run(self.sound, "any-cell", 0)

    def attempt(self, chance):
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.copytree(self.sound, self.root)
        files = sorted(file for file in self.root.rglob("*") if file.is_file())
        file = chance.choice([file for file in files if file.suffix in (".json", ".parquet")])
        self.damage(file, chance)
        if chance.randrange(2) and file.name != store.MARKER:
            with suppress(ValueError, OSError):
                store.mark(file.parent)  # by somebody who can write a marker too
        refused = 0
        for read in (
            lambda: load_results(self.root).query("select agent, count(*) from eval group by all"),
            lambda: contests.read(self.root),
            lambda: compare.power(load_results(self.root), "ood_success", 0.1, 0.8),
            lambda: compare.load_result(file.parents[1]),
        ):
            try:
                read()
            except ValueError as refusal:
                refused += is_one_line(refusal)
        return refused > 0

    def damage(self, file, chance):
        how = chance.randrange(6)
        if how < 3 and file.suffix == ".json":
            with suppress(ValueError):
                text = json.dumps(spoil(json.loads(file.read_text()), chance))
                file.write_text(text, errors="replace")
                return
        if how == 3:
            file.unlink()
            file.mkdir()
        elif how == 4:
            file.unlink()
            os.mkfifo(file)
        else:
            file.write_bytes(spoil_bytes(file.read_bytes(), chance))


class Messages:
    """What an agent's process might send: an `AgentError`, or a message as it was meant."""

    def __init__(self, place):
        self.messages = [
            external._message({"methods": ["reset", "act"]}),
            external._message({}, np.arange(6)),
            external._message({"error": "x", "details": "y"}),
        ]

    def attempt(self, chance):
        data = chance.choice(self.messages)
        if chance.randrange(2):
            size = int.from_bytes(data[:4], "little")
            head = json.dumps(spoil(json.loads(data[4 : 4 + size]), chance)).encode()
            data = len(head).to_bytes(4, "little") + head + data[4 + size :]
        else:
            data = spoil_bytes(data, chance)
        left = memoryview(data)

        def read(size):
            nonlocal left
            if size > len(left):
                raise external.AgentError("its process ended")
            part, left = bytes(left[:size]), left[size:]
            return part

        try:
            header, _ = external._parse(read, "x")
        except external.AgentError:
            return True
        assert isinstance(header, dict)
        return False


class Datasets:
    """Datasets with damage, vouched for by their manifests: refused, or the very same content."""

    def __init__(self, place):
        spec = Spec(
            behaviour="optimal",
            track="core",
            length=9,
            horizon=4,
            split=splits.load("folds-0"),
            episodes=200,
        )
        self.path, self.manifest = datasets.make(spec, place)
        self.sound = {file.name: file.read_bytes() for file in self.path.iterdir()}

    def attempt(self, chance):
        shutil.rmtree(self.path)
        self.path.mkdir()
        for name, data in self.sound.items():
            (self.path / name).write_bytes(data)
        document = json.loads(self.sound["dataset.json"])
        how = chance.randrange(4)
        if how == 0:
            file = self.path / chance.choice(sorted(self.sound))
            file.write_bytes(spoil_bytes(self.sound[file.name], chance))
        elif how == 1:
            document = spoil(document, chance)
        else:
            name = document["tables"][0]["name"]
            data = spoil_bytes(self.sound[name], chance)
            (self.path / name).write_bytes(data)
            vouched = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            document["tables"][0] |= vouched
        if how:
            text = json.dumps(document)
            (self.path / "dataset.json").write_text(text, errors="replace")
            with suppress(ValueError):
                described = croissant.describe(read_manifest(self.path))
                (self.path / "croissant.json").write_text(json.dumps(described))
        try:
            verdict = check(self.path)
        except ValueError as refusal:
            return is_one_line(refusal)
        assert verdict.manifest.content == self.manifest.content, "another content was accepted"
        return False


TARGETS = {"bundles": Bundles, "runs": Runs, "messages": Messages, "datasets": Datasets}


def fuzz(seconds, seed=None, targets=tuple(TARGETS)):
    """Try for so long, in turn; the first failure is raised with the seed that shows it again."""
    tally = Tally()
    with tempfile.TemporaryDirectory() as place:
        for name in targets:
            room = Path(place, name)
            room.mkdir()
            target = TARGETS[name](room)
            first = random.SystemRandom().randrange(2**32) if seed is None else seed
            until = time.monotonic() + seconds / len(targets)
            number = first
            while number == first or (seed is None and time.monotonic() < until):
                try:
                    with (
                        open(os.devnull, "w") as nowhere,
                        redirect_stdout(nowhere),
                        redirect_stderr(nowhere),
                    ):
                        tally.count(name, target.attempt(random.Random(number)))
                except Exception as error:
                    raise AssertionError(
                        f"python tests/support/fuzz.py --target {name} --seed {number}"
                    ) from error
                number += 1
    return tally


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, help="try this case alone")
    parser.add_argument("--target", choices=TARGETS, action="append")
    arguments = parser.parse_args()
    print(fuzz(arguments.seconds, arguments.seed, arguments.target or tuple(TARGETS)))


if __name__ == "__main__":
    sys.exit(main())
