"""One run: train an agent with one seed, evaluate it on the way, store everything.

The host loop around an agent's pure functions. A run is fixed by its `RunSpec`: whatever else runs
at the same time, and however often it is interrupted and resumed, its rows are the same to the bit
on the same machine and versions. At each evaluation the whole training state is checkpointed.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tapebench import __version__
from tapebench.base import files, seeding
from tapebench.exam import metrics
from tapebench.exam.exam import SUBSETS, Exam, make_exam
from tapebench.exam.metrics import METRICS, rule_means
from tapebench.exam.policy import Policy
from tapebench.exam.rollout import rollout
from tapebench.physics import families
from tapebench.physics.space import Space
from tapebench.runs import store
from tapebench.runs.results import load_results
from tapebench.runs.store import RunId
from tapebench.tasks import splits
from tapebench.tasks.task import Task, make_task, parse_space
from tapebench.tasks.universe import ELEMENTARY

if TYPE_CHECKING:
    from tapebench.agents.api import Agent

SCHEMA = 1

MAX_STEPS = 2**31
"""Agents count steps in an int32."""


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """Everything that decides what a run is."""

    agent: str
    seed: int
    experiment: str = "main"
    split: str = "fps30"
    train_on: str | tuple[int, ...] = "train"
    """The rules trained on: a side of the split, or rules. Subsets in results are those of the
    split, so that training on the held-out side shows what could be had there."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the agent's config that differ from its defaults."""
    family: str = ELEMENTARY.family.name
    length: int = 32
    """Cells of the tape; of a torus its `shape` says how many."""
    shape: tuple[int, ...] | None = None
    """Sides of a torus; None for a ring."""
    horizon: int = 32
    mask: tuple[int, ...] = ()
    reward: str = "distance"
    """The reward in training, see `tapebench.tasks.task.reward`. Exams do not depend on it."""
    success_bonus: float = 1.0
    steps: int = 200_000
    """Environment steps; auto-reset steps are not counted. Of an agent that learns from a dataset
    labelled transitions consumed."""
    evaluate_every: int = 10_000
    episodes: int = 20
    """Start tapes for every rule in an evaluation."""
    last: int = 3
    """Evaluations at the end that count: these are kept episode by episode."""
    rules: tuple[int, ...] | None = None
    """Rules to evaluate on; None for both sides of the split."""
    track: str | None = None
    """Name and version of the track that the budget comes from."""

    def __post_init__(self) -> None:
        for name in ("steps", "evaluate_every", "episodes", "last"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.steps >= MAX_STEPS:
            raise ValueError(f"steps must be below {MAX_STEPS:,}, not {self.steps:,}")
        if self.steps % self.evaluate_every:
            raise ValueError(
                f"steps must be a multiple of evaluate_every, {self.evaluate_every}, "
                f"not {self.steps}"
            )
        if self.steps // self.evaluate_every < self.last:
            raise ValueError(
                f"there are {self.steps // self.evaluate_every} evaluations and the last "
                f"{self.last} should count: evaluate more often"
            )
        if self.family != ELEMENTARY.family.name or self.shape is not None:
            length = self.length if self.shape is None else None
            space = parse_space(families.get(self.family), length, self.shape)
            object.__setattr__(self, "length", space.size)
            object.__setattr__(self, "shape", space.shape if space.is_torus else None)

    @cached_property
    def id(self) -> RunId:
        return RunId(self.experiment, self.agent, splits.load(self.split).name, self.seed)

    @cached_property
    def task(self) -> Task:
        """The training task."""
        which = self.train_on if isinstance(self.train_on, str) else list(self.train_on)
        return make_task(
            rules=which, reward=self.reward, success_bonus=self.success_bonus, **self._world
        )

    @cached_property
    def exam(self) -> Exam:
        """The exam of each evaluation."""
        rules = None if self.rules is None else list(self.rules)
        return make_exam(episodes=self.episodes, rules=rules, **self._world)

    @property
    def _world(self) -> dict[str, Any]:
        return {
            "family": self.family,
            "split": self.split,
            "length": None if self.shape else self.length,
            "shape": self.shape,
            "horizon": self.horizon,
            "mask": list(self.mask) or None,
        }

    @cached_property
    def config(self) -> dict[str, Any]:
        """The agent's config; its `total_steps`, if it has that, is the budget."""
        from tapebench import agents

        options = dict(self.options)
        if "total_steps" in {entry.name for entry in fields(agents.load(self.agent)[0])}:
            options.setdefault("total_steps", self.steps)
        return asdict(agents.configure(self.agent, **options))

    def make_agent(self) -> Agent:
        """The agent for its environment. Refuses an interval that its chunk does not divide."""
        from tapebench import agents
        from tapebench import env as envs

        agent = agents.make(self.agent, *envs.make(task=self.task), **self.config)
        if self.evaluate_every % agent.chunk:
            raise ValueError(
                f"evaluate_every must be a multiple of {self.agent}'s chunk, {agent.chunk}, "
                f"not {self.evaluate_every}"
            )
        return agent

    def agent_for(self, task: Task) -> Agent:
        """The agent for another space, if its weights do not depend on the space."""
        from tapebench import agents
        from tapebench import env as envs
        from tapebench.agents import api

        other = agents.make(self.agent, *envs.make(task=task), **self.config)
        key = seeding.key(self.seed, "train", self.agent)
        if api.learned_shapes(self.make_agent(), key) != api.learned_shapes(other, key):
            own = sides(self.task.space)
            where, option = ("a torus of", "shape") if self.shape else ("tapes of", "length")
            raise ValueError(
                f"{self.id} was trained on {where} {own} cells, not {sides(task.space)}: "
                f"use --{option} {own}"
            )
        return other

    def as_dict(self) -> dict[str, Any]:
        """The document in `spec.json`: the settings, and the config and rules they stand for.

        Family and shape are in it where they are not elementary and a ring: what was stored before
        there were others stays the same document.
        """
        from tapebench import agents

        settings = asdict(self)
        for name in ("family", "shape"):
            if settings[name] == getattr(type(self), name):
                del settings[name]
        return {
            "schema": SCHEMA,
            **settings,
            "config": agents.config_document(self.agent, self.config),
            "trained_on": list(self.task.rules),
            "exam": self.exam.identity,
        }


def sides(space: Space) -> str:
    """The sides of a space as options take them: `32` or `5x5`."""
    return "x".join(map(str, space.shape))


def from_dict(document: Mapping[str, Any]) -> RunSpec:
    """The inverse of `RunSpec.as_dict`.

    Where a default has changed since, its old value becomes an option.
    """
    from tapebench import agents

    names = {entry.name for entry in fields(RunSpec)}
    values = {key: value for key, value in document.items() if key in names}
    values |= {key: tuple(value) for key, value in values.items() if isinstance(value, list)}
    try:
        spec = RunSpec(**values)
    except TypeError as error:
        raise ValueError(f"this is not the spec of a run: {error}") from None
    stored = document.get("config")
    if not isinstance(stored, Mapping) or spec.agent not in agents.NAMES:
        return spec
    config = agents.read_config(spec.agent, stored)
    defaults = vars(agents.configure(spec.agent))
    changed = {name: value for name, value in config.items() if defaults.get(name) != value}
    return spec if spec.config == config else replace(spec, options={**spec.options, **changed})


ReportProgress = Callable[[dict[str, Any]], Any]
"""Progress of a run: `run`, `step`, `steps`, `speed`, `id` and `ood` success if evaluated, and a
`note` if there is one."""


Log = Callable[[int, dict[str, float]], Any]
"""`log(step, scalars)` of what training and evaluations report."""


class Stopped(KeyboardInterrupt):
    """The run was interrupted; its state is stored."""


def run(
    spec: RunSpec,
    root: Path,
    *,
    report: ReportProgress = lambda event: None,
    stop: Callable[[], bool] = lambda: False,
    log: Log = lambda step, scalars: None,
    anew: bool = False,
) -> Path:
    """Train a run, or resume it, unless it is finished; returns its directory.

    `stop` is called after every chunk: once it is true the state is stored and `Stopped` raised.
    """
    with store.open_run(root, spec.id, spec.as_dict(), anew=anew) as opened:
        if not opened.is_done:
            _Trainer(OpenRun(spec, opened, log), report).train(stop)
        return opened.path


class OpenRun(NamedTuple):
    """A locked run and its metrics logger."""

    spec: RunSpec
    opened: store.Run
    log: Log


def run_together(
    runs: Sequence[OpenRun], *, report: ReportProgress, stop: Callable[[], bool] = lambda: False
) -> None:
    """Train runs that differ in their seeds alone as one program, vmapped over them.

    Runs that are behind, as after a kill, catch up first. Otherwise like `run`.
    """
    import jax

    from tapebench.agents import api

    trainers = [_Trainer(run, report, len(runs)) for run in runs if not run.opened.is_done]
    if not trainers:
        return
    train = jax.jit(jax.vmap(trainers[0].agent.train), donate_argnums=0)
    steps, every = trainers[0].spec.steps, trainers[0].spec.evaluate_every
    chunk = trainers[0].agent.chunk
    while (first := min(trainer.step for trainer in trainers)) < steps:
        group = [trainer for trainer in trainers if trainer.step == first]
        until = min((trainer.step for trainer in trainers if trainer.step > first), default=steps)
        states = api.stack([trainer.state for trainer in group])
        for step in range(first + chunk, until + chunk, chunk):
            states, metrics = train(states)
            is_stopping = stop() and step < steps
            for number, trainer in enumerate(group):
                if step % every == 0 or step == until or is_stopping:
                    trainer.state = api.unstack(states, number)
                trainer.after_chunk({name: value[number] for name, value in metrics.items()})
            if is_stopping:
                for trainer in group:
                    trainer.save()
                raise Stopped
    for trainer in trainers:
        trainer.finish()


class _Trainer:
    """A run in progress."""

    def __init__(self, run: OpenRun, report: ReportProgress, together: int = 1) -> None:
        import jax

        from tapebench.agents import api

        self.spec, self.opened, self.log = run
        spec, opened = run.spec, run.opened
        self.report, self.together = report, together
        self.agent = spec.make_agent()
        self.exam = spec.exam
        self.optimal_steps = self.exam.optimal_steps()
        self.run_columns = {
            "experiment": spec.experiment,
            "agent": spec.agent,
            "seed": spec.seed,
        }
        key = seeding.key(spec.seed, "train", spec.agent)
        self.about = {**_about(spec), "config": opened.spec["config"]}
        if self.agent.data is not None:
            self.about["data"] = self.agent.data()
        self.step, self.seconds, self.core_seconds = 0, 0.0, 0.0
        self.events: list[dict[str, float]] = []
        self.shown: dict[str, Any] = {}
        self.first_step, self.began = 0, time.monotonic()
        if opened.note:
            self._tell(f"begun anew: {opened.note}")
        try:
            checkpoint = opened.load_checkpoint(self.about)
            if checkpoint is not None:
                self.seconds, self.core_seconds = _check_begun(spec, opened, checkpoint[0])
                self.step, arrays = checkpoint
                self.state = api.from_arrays(jax.eval_shape(self.agent.init, key), arrays)
        except files.DamageError as error:
            # Of damaged files nothing is gone on from: the result would not be the same.
            opened.begin_anew()
            checkpoint = None
            self._tell(f"begun anew: {error}")
        if checkpoint is None:
            self.state = self.agent.init(key)
        self.first_step, self.began = self.step, time.monotonic()
        self.began_core = time.process_time()

    def train(self, stop: Callable[[], bool]) -> None:
        while self.step < self.spec.steps:
            self.state, metrics = self.agent.train(self.state)
            self.after_chunk(metrics)
            if stop() and self.step < self.spec.steps:
                self.save()
                raise Stopped
        self.finish()

    def after_chunk(self, metrics: Mapping[str, Any]) -> None:
        """Record what training reported; evaluate if it is time to."""
        self.step += self.agent.chunk
        scalars = {name: float(value) for name, value in metrics.items()}
        self.events.append({"step": self.step, **scalars})
        self.log(self.step, scalars)
        if self.step % self.spec.evaluate_every == 0:
            self.evaluate()
            self.save()
        self._tell()

    def finish(self) -> None:
        from tapebench.agents import api

        opened, last = self.opened, self.spec.last
        summary = summarise_run(opened.read("curve"), opened.read("eval"), last)
        if not is_finite(api.to_arrays(self.state)):
            summary["diverged"] = True
        opened.finish(summary)

    def evaluate(self) -> None:
        """Run the exam; store means per rule, and every episode if the evaluation counts."""
        spec, exam = self.spec, self.exam
        episodes = rollout(self.agent.policy(self.state), exam.task, None, exam.episodes)
        self.opened.extend("curve", rule_means(episodes, exam, **self.run_columns, step=self.step))
        if self.step > spec.steps - spec.last * spec.evaluate_every:
            rows = metrics.rows(
                episodes, exam, self.optimal_steps, **self.run_columns, step=self.step
            )
            self.opened.extend("eval", rows)
        for subset in SUBSETS:
            if len(in_subset := exam.rows(subset)):
                self.shown[subset] = float(episodes.success[in_subset].mean())
        self.log(self.step, {f"{name}_success": value for name, value in self.shown.items()})

    def save(self) -> None:
        """Store the metrics and the whole training state."""
        from tapebench.agents import api

        if self.events:
            names = list(self.events[0])
            table = {name: np.array([event[name] for event in self.events]) for name in names}
            self.opened.extend("train", table | {"seed": np.full(len(self.events), self.spec.seed)})
            self.events = []
        spent = self.seconds + time.monotonic() - self.began
        about = files.provenance(spent)
        about["core_seconds"] = round(self.core_seconds + time.process_time() - self.began_core, 3)
        if self.together > 1:
            about["together"] = self.together
        files.write_json(self.opened.path / "provenance.json", about)
        self.opened.save_checkpoint(self.step, api.to_arrays(self.state), self.about)

    def _tell(self, note: str = "") -> None:
        spent = time.monotonic() - self.began
        self.report(
            {
                "run": str(self.spec.id),
                "step": self.step,
                "steps": self.spec.steps,
                "speed": (self.step - self.first_step) / max(spent, 1e-9),
                **({"note": note} if note else {}),
                **self.shown,
            }
        )


def _check_begun(spec: RunSpec, opened: store.Run, step: int) -> tuple[float, float]:
    """Refuse to resume from a checkpoint whose earlier evaluations are incomplete.

    Returns the seconds that the run has taken so far, by the clock and of a core.
    """
    expected = np.arange(spec.evaluate_every, step + 1, spec.evaluate_every)
    counted = spec.steps - spec.last * spec.evaluate_every
    for name, steps in (("curve", expected), ("eval", expected[expected > counted])):
        if len(steps) and not np.isin(steps, opened.read(name)["step"]).all():
            raise files.DamageError(f"{opened.path / name}.parquet lacks evaluations")
    about = files.read_object(opened.path / "provenance.json")
    seconds = about.get("seconds")
    if not isinstance(seconds, (int, float)):
        raise files.DamageError(f"{opened.path}/provenance.json does not say how long it took")
    core_seconds = about.get("core_seconds", seconds)  # not in runs that were begun before it was
    return float(seconds), float(core_seconds)


def _about(spec: RunSpec) -> dict[str, Any]:
    """What must be the same for a checkpoint to be resumed from."""
    from tapebench import agents

    about = {
        "agent": spec.agent,
        "length": spec.length,
        "version": __version__,
        "jax": metadata.version("jax"),
    }
    if agents.is_from_outside(spec.agent):
        about["source"] = agents.source_hash(spec.agent)
    return about


def summarise_run(curve: files.Columns, episodes: files.Columns, last: int) -> dict[str, Any]:
    """A run in a few numbers: means over its last evaluations, by subset, by type and by the steps
    that a tape needs.

    The learning curve is there too, so that thousands of runs are read without their tables.
    """
    steps = np.unique(curve["step"])
    counted = metrics.counted(curve["step"], last)
    summary: dict[str, Any] = {"steps": int(steps[-1]), "evaluations": len(steps), "last": last}
    for subset in SUBSETS:
        in_subset = counted & (curve["subset"] == subset)
        if not in_subset.any():
            continue
        summary[subset] = {
            name: float(curve[name][in_subset].mean(dtype=float)) for name in METRICS
        }
        summary[subset]["by_type"] = {
            str(kind): float(
                curve["success"][in_subset & (curve["type"] == kind)].mean(dtype=float)
            )
            for kind in np.unique(curve["type"][in_subset])
        }
        is_solvable = (episodes["subset"] == subset) & (episodes["optimal_steps"] >= 0)
        needed, which = np.unique(episodes["optimal_steps"][is_solvable], return_inverse=True)
        won = np.bincount(which, episodes["success"][is_solvable]) / np.bincount(which)
        summary[subset]["by_steps"] = [
            [int(number), float(share)] for number, share in zip(needed, won, strict=True)
        ]
    summary["curve"] = {"step": steps.tolist()} | {
        subset: [
            float(curve["success"][in_subset & (curve["step"] == step)].mean(dtype=float))
            for step in steps
        ]
        for subset in SUBSETS
        if (in_subset := curve["subset"] == subset).any()
    }
    if all(subset in summary for subset in SUBSETS):
        summary["drop"] = summary["id"]["success"] - summary["ood"]["success"]
    return summary


def is_finite(arrays: Mapping[str, np.ndarray]) -> bool:
    """Whether all that a state has learned is finite. If not, its choices mean nothing: the largest
    of values that are no numbers is the first."""
    from tapebench.agents import api

    learned = api.learned(arrays) or arrays  # those of others may be called anything
    return all(np.isfinite(array).all() for array in learned.values() if array.dtype.kind == "f")


class Stored(NamedTuple):
    """The policy of a run at its last checkpoint."""

    policy: Policy
    spec: RunSpec
    step: int
    is_finite: bool = True


def load_run(path: Path, task: Task) -> Stored:
    """A run's policy, to act in `task`.

    A network that is the same in every cell also acts in spaces that it was not trained in. Any
    other is refused there, and so are rules of another family, and a goal that was not observed in
    training.
    """
    spec = from_dict(files.read_json(path / "spec.json"))
    if task.observe_goal != spec.task.observe_goal:
        raise ValueError(f"{spec.id} was trained without seeing a goal: leave out --observe-goal")
    if task.family != spec.task.family:
        raise ValueError(
            f"{spec.id} was trained on {spec.family} rules, not on those of {task.family.name}: "
            f"use --family {spec.family}"
        )
    is_other = task.space != spec.task.space
    agent = spec.agent_for(task) if is_other else spec.make_agent()
    step, state, finite = load_learned(path, spec, agent, is_other)
    return Stored(agent.policy(state), spec, step, finite)


def load_learned(
    path: Path, spec: RunSpec, agent: Agent, is_other: bool = False
) -> tuple[int, Any, bool]:
    """The step of a run's last checkpoint, a state of `agent` with its parameters, and whether
    these are finite.

    `is_other` says that the agent is one for another space: the rest of the state, such as the
    episodes that the run was in, does not fit it.
    """
    import jax

    from tapebench.agents import api

    checkpoint = store.load_checkpoint(path, {"agent": spec.agent, "length": spec.length})
    if checkpoint is None:
        raise ValueError(store.no_checkpoint(path))
    step, arrays = checkpoint
    if is_other:
        arrays = api.learned(arrays)
    key = seeding.key(spec.seed, "train", spec.agent)
    state = api.from_learned(jax.eval_shape(agent.init, key), arrays)
    return step, state, is_finite(arrays)


def load_runs(path: Path, task: Task) -> list[Stored]:
    """The run in a directory, or the finished runs below it: seeds of one agent.

    A run that is named may be unfinished, but not damaged; of those below, only sound ones count,
    and a `files.DamageWarning` names each of the others.
    """
    store.refuse_damage(path)
    if (path / "spec.json").is_file() or store.has_marker(path):
        paths: tuple[Path, ...] = (path,)
    else:
        stored = load_results(path)
        paths = stored.paths
        for damage in stored.left_out:
            warnings.warn(str(damage), files.DamageWarning, stacklevel=2)
    if not paths:
        raise ValueError(f"there are no finished runs in {path}")
    return load_seeds(paths, path, task)


def load_seeds(paths: Sequence[Path], root: Path, task: Task) -> list[Stored]:
    """Runs below `root`, which must be seeds of one agent."""
    runs = [load_run(run, task) for run in paths]
    if len({(run.spec.id.experiment, run.spec.id.agent, run.spec.id.split) for run in runs}) > 1:
        raise ValueError(f"{root} holds several agents: name a directory further down")
    return runs


def use_compilation_cache() -> None:
    """Keep compiled programs in the user's cache directory from process to process.

    XLA compiles for the cores that there are and does not say so in the names of its files, though
    sums come out otherwise: programs for other numbers of cores are kept apart.
    """
    import jax

    folder = files.user_cache() / "jax" / f"{len(os.sched_getaffinity(0))}-cores"
    jax.config.update("jax_compilation_cache_dir", str(folder))
    # A run has a dozen programs that compile within half a second each. JAX's own variable wins.
    if "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS" not in os.environ:
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
