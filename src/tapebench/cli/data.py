"""`tape data make|list|check`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from tapebench.cli.console import progress, report, screen

if TYPE_CHECKING:
    from tapebench.datasets.manifest import Manifest

Results = Annotated[Path, tyro.conf.arg(metavar="DIR")]


@dataclass(frozen=True)
class DataMake:
    """Make a dataset of episodes under the training rules of a split, with exact labels.

    NAME says who plays: random, flip-ones, learning (tabular Q-learning from scratch, 512 episodes
    under each rule), mixed (optimal play with noise that falls over 64 episodes), optimal (the rule
    known) or bayes-optimal (the rule unknown). The last four reach up to 16 cells, and so do the
    optimal cells and steps; on longer tapes these are marked as not known.

    It goes to DIR/data, in plain Parquet. Interrupted, it resumes; the same again makes nothing.

    For example:
      tape data make optimal
      tape data make learning --split folds-3 --episodes 250000 --minari
    """

    name: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="NAME")]
    """random, flip-ones, learning, mixed, optimal or bayes-optimal."""
    track: Annotated[str, tyro.conf.arg(metavar="TRACK")] = "core"
    """Whose task is played: core, full or another track."""
    split: Annotated[str | None, tyro.conf.arg(metavar="SPLIT")] = None
    """A named split or a split file, whose training rules occur; by default that of the track."""
    episodes: Annotated[int, tyro.conf.arg(metavar="N")] = 100_000
    """How many episodes."""
    seed: Annotated[int, tyro.conf.arg(metavar="SEED")] = 0
    """Seed of rules, start tapes and play. Names share rules and tapes where they can."""
    results: Results = Path("runs")
    """Results directory."""
    minari: bool = False
    """Also write it for Minari (extra `data`): minutes and gigabytes for a million steps."""
    json: bool = False
    """Print one JSON document."""

    def run(self) -> None:
        from tapebench.datasets import minari_format, store
        from tapebench.datasets.spec import Spec
        from tapebench.runs import tracks
        from tapebench.tasks import splits

        track = tracks.get_track(self.track)
        if track.mask:
            raise ValueError(
                f"track {self.track} hides cells, which datasets do not: choose core or full"
            )
        spec = Spec(
            behaviour=self.name,
            track=track.label.replace("@", "-"),
            length=track.length,
            horizon=track.horizon,
            split=splits.load(self.split or track.split),
            episodes=self.episodes,
            seed=self.seed,
        )
        if self.minari:
            minari_format.check_installed()
        with progress() as show:
            path, manifest = store.make(spec, self.results, show)
            if self.minari:
                manifest = minari_format.export(path, manifest, show)
        if self.json:
            print(json.dumps(_summary(path, manifest)))
            return
        print(f"{manifest.steps:,} steps in {path}, {manifest.size / 1e6:.1f} MB")
        print(f"content {manifest.content}")


@dataclass(frozen=True)
class DataList:
    """List the datasets under a results directory, with sizes and hashes.

    The hash is of the content, whatever version of a library has written it.

    For example:
      tape data list
      tape data list --results elsewhere --json
    """

    results: Results = Path("runs")
    """Results directory."""
    json: bool = False
    """Print one JSON document."""

    def run(self) -> None:
        from tapebench.base.files import DamageError
        from tapebench.datasets import store
        from tapebench.datasets.manifest import read_manifest

        listed = []
        for path in store.find(self.results):
            try:
                listed.append(_summary(path, read_manifest(path)))
            except DamageError as error:
                screen(stderr=True).print(f"tape: {error}", style="red", soft_wrap=True)
        rows = [
            [
                entry["id"].removeprefix("tape/"),
                f"{entry['episodes']:,}",
                f"{entry['steps']:,}",
                f"{entry['bytes'] / 1e6:.1f}",
                entry["content"][:12],
            ]
            for entry in listed
        ]
        columns = ("dataset", "episodes", "steps", "MB", "content")
        report({"datasets": listed}, self.json, "Datasets", columns, rows)


@dataclass(frozen=True)
class DataCheck:
    """Check a dataset that others have made: files, schema, every transition and every label.

    Shows that transitions, rewards, optimal cells, steps and entropies are exact, that rules and
    start tapes are those that its seed draws, and that no rule is held out by its split. Whether
    the actions are those of its name shows who makes it again and compares the content's hash.

    For example:
      tape data check runs/data/tape/core-folds-0/optimal-v0
      tape data check downloaded/optimal-v0 --sample 2 --json
    """

    path: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="DATASET")]
    """Its directory."""
    sample: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Replay so many of its files, at even distances; by default all. Hashes are always of all."""
    json: bool = False
    """Print one JSON document."""

    def run(self) -> None:
        from tapebench.datasets.check import check

        with progress() as show:
            verdict = check(self.path, self.sample, show)
        manifest, split = verdict.manifest, verdict.manifest.spec.split
        if self.json:
            checked = {"replayed": verdict.replayed, "rules": list(verdict.rules)}
            print(json.dumps({"sound": True, **_summary(self.path, manifest), **checked}))
            return
        print(
            f"sound: {manifest.spec.id}, {verdict.replayed:,} of {manifest.steps:,} steps replayed "
            f"under {len(verdict.rules)} rules, none of the {len(split.test)} that {split.name} "
            "holds out"
        )
        print(f"content {manifest.content}")


def _summary(path: Path, manifest: Manifest) -> dict[str, Any]:
    return {
        "id": manifest.spec.id,
        "path": str(path),
        "episodes": manifest.spec.episodes,
        "steps": manifest.steps,
        "bytes": manifest.size,
        "minari": bool(manifest.extra),
        "content": manifest.content,
    }


@dataclass(frozen=True)
class Data:
    """Make, list and check datasets for agents that learn from data.

    For example:
      tape data make optimal
      tape data list
    """

    command: tyro.conf.OmitSubcommandPrefixes[
        Annotated[DataMake, tyro.conf.subcommand("make")]
        | Annotated[DataList, tyro.conf.subcommand("list")]
        | Annotated[DataCheck, tyro.conf.subcommand("check")]
    ]

    def run(self) -> None:
        self.command.run()
