"""Finished runs without any training: simple policies sit the exam and are stored as if learned."""

from functools import lru_cache

import numpy as np

from tapebench.base import files, seeding
from tapebench.exam import bundle, metrics
from tapebench.exam.exam import make_exam
from tapebench.exam.policy import Policy, flip_a_one, flip_ones
from tapebench.exam.rollout import rollout
from tapebench.exam.seating import Conditions
from tapebench.runs import store, training

RULES = (0, 4, 30, 36, 44, 60, 90, 108, 110, 128, 204, 255)
"""Some of each type, five of them held out by fps30."""

EXAM = make_exam(split="fps30", length=8, horizon=8, episodes=6, rules=list(RULES))


def first_one(obs, stream):
    """The first cell that is one."""
    return obs[:, :-1].argmax(axis=1)


def any_one(obs, stream):
    """Some cell that is one."""
    return flip_a_one(obs[:, :-1], stream)


def any_cell(obs, stream):
    """Some cell."""
    return seeding.uniform(stream, obs.shape[1] - 1).argmax(axis=1)


AGENTS = {"first-one": first_one, "any-one": any_one, "any-cell": any_cell}


def sit(name, seed, exam=EXAM):
    """Episodes of one of `AGENTS`."""
    return play(name, seed, exam.task, exam.episodes)


@lru_cache(maxsize=64)
def play(name, seed, task, episodes):
    """The same whatever split an exam is of, and at full size a matter of seconds."""
    act = AGENTS.get(name, any_one)
    policy = Policy(
        name, lambda rule, num: (), lambda m, obs, stream: (m, act(obs, stream)), backend="numpy"
    )
    return rollout(policy, task, None, episodes, seed=seed)


def store_run(
    root, name, seed, *, experiment="main", exam=EXAM, last=2, trained_on=None, track=None
):
    """One finished run with two evaluations that count after one that does not."""
    spec = {
        "agent": name,
        "seed": seed,
        "experiment": experiment,
        "split": exam.split,
        "last": last,
        "trained_on": list(trained_on or exam.origin.train),
        "exam": exam.identity,
        "track": track,
    }
    whose = {"experiment": experiment, "agent": name, "seed": seed}
    run_id = store.RunId(experiment, name, exam.split, seed)
    optimal = exam.optimal_steps()
    with store.open_run(root, run_id, spec) as run:
        for number in range(1, last + 2):
            episodes, step = sit(name, 100 * seed + number, exam), 1000 * number
            run.extend("curve", metrics.rule_means(episodes, exam, **whose, step=step))
            if number > 1:
                run.extend("eval", metrics.rows(episodes, exam, optimal, **whose, step=step))
        files.write_json(run.path / "provenance.json", files.provenance(12.0))
        run.finish(training.summarise_run(run.read("curve"), run.read("eval"), last))
        return run.path


def store_runs(root, seeds=3, agents=tuple(AGENTS), **fields):
    """Runs of all agents, and beside them episodes of the first as a bundle."""
    for name in agents:
        for seed in range(seeds):
            store_run(root, name, seed, **fields)
    return root


def finish_run(root, spec):
    """A finished run of a real spec, as if its agent had learned to flip ones; its episodes."""
    exam = spec.exam
    episodes = rollout(flip_ones(exam.task), exam.task, None, exam.episodes, seed=spec.seed)
    whose = {"experiment": spec.experiment, "agent": spec.agent, "seed": spec.seed}
    with store.open_run(root, spec.id, spec.as_dict()) as run:
        for number in reversed(range(spec.last)):
            step = spec.steps - number * spec.evaluate_every
            labels = {**whose, "step": step}
            run.extend("curve", metrics.rule_means(episodes, exam, **labels))
            run.extend("eval", metrics.rows(episodes, exam, exam.optimal_steps(), **labels))
        files.write_json(run.path / "provenance.json", files.provenance(12.0))
        run.finish(training.summarise_run(run.read("curve"), run.read("eval"), spec.last))
    return episodes


def store_bundle(path, name="first-one", exam=EXAM):
    about = {"policy": name, "sees_rule": False}
    bundle.write(path, sit(name, 0, exam), exam, about, Conditions("by us"))


def expected(name, metric, seeds=3, last=2):
    """The metric `[S, R]` computed again from the episodes themselves."""
    of = metrics.METRICS[metric]
    return np.array(
        [
            np.mean([of(sit(name, 100 * s + n + 2)).mean(axis=1) for n in range(last)], axis=0)
            for s in range(seeds)
        ]
    )
