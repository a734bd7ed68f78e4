"""Have mlcroissant read the metadata of a small dataset: `make croissant`, in a venv of its own."""

import logging
import sys
import tempfile
from importlib import metadata
from pathlib import Path

import mlcroissant

from tapebench.datasets import Spec, load, store
from tapebench.tasks import splits


def main() -> None:
    spec = Spec(
        behaviour="optimal",
        track="core",
        length=9,
        horizon=4,
        split=splits.load("folds-0"),
        episodes=70_000,
    )
    with tempfile.TemporaryDirectory() as root:
        path, manifest = store.make(spec, Path(root))
        described = mlcroissant.Dataset(jsonld=str(path / store.CROISSANT))
        issues = described.metadata.ctx.issues
        if issues.errors or issues.warnings:
            sys.exit(issues.report())
        records = list(described.records("steps"))
        data = load(path)
    assert len(records) == manifest.steps, f"{len(records)} records, not {manifest.steps}"
    first = records[0]["steps/tape"], records[0]["steps/action"]
    assert first == (data.tape[0, 0], data.action[0, 0])
    version = metadata.version("mlcroissant")
    print(f"mlcroissant {version}: no errors, no warnings, {len(records):,} records")


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR)
    main()
