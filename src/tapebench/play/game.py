"""Games on the exam's own tapes, and what their player has been shown of the rule.

A `RuleGames` is one rule with the tapes that are played under it. What a player knows belongs to
the rule and not to a game: a player who has seen the rule on the first tape knows it on the second.
So every move notes what had been shown before it, and a saved result says so. A rule that is drawn
again makes new `RuleGames`: its player does not know that it is the same.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from tapebench.base import files, seeding
from tapebench.exam import bundle, policy
from tapebench.exam.bundle import Bundle
from tapebench.exam.exam import IMPOSSIBLE, STANDARD, Exam, make_exam
from tapebench.exam.rollout import Episodes, rollout
from tapebench.exam.seating import Conditions
from tapebench.physics import exact, space
from tapebench.planning import beam
from tapebench.tasks import splits

MAX_LENGTH = 32
"""Longest tape to play: what search takes, and about what fits on a screen."""

MAX_TAPES = 1000
"""Tapes under one rule."""

EXACT_LENGTH = 16
"""Hints are proved best moves up to here; beyond they are what search finds."""

BASELINES = ("random", "flip-ones", "greedy")
"""Policies that also play the same tape when a game is over."""

DRAWS = 64
"""Attempts to find a hidden rule under which the tape can be solved."""

Way = Literal["chosen", "hint", "compare", "name", "save"]
"""How a rule is shown: the player chose it, took a best move under it, compared a finished game,
named it and was told whether that is right, or saved a result, which holds the rule."""

NAMING: frozenset[Way] = frozenset({"chosen", "compare", "name"})
"""The ways that tell the number of the rule. The page and file names keep it back until then."""


@dataclass(frozen=True)
class Game:
    """One episode in progress."""

    rule: int
    split: str
    length: int
    horizon: int
    episode: int = 0
    """Which of the exam's start tapes."""
    cells: tuple[int, ...] = ()
    """The flips so far."""
    shown: tuple[Way, ...] = ()
    """How the rule had been shown to the player by the last move; empty for a blind game."""

    @cached_property
    def exam(self) -> Exam:
        """The exam of this rule alone, up to this tape."""
        return make_exam(
            split=self.split,
            rules=[self.rule],
            episodes=self.episode + 1,
            length=self.length,
            horizon=self.horizon,
        )

    @cached_property
    def tapes(self) -> list[int]:
        """The tapes so far, from the start to the present."""
        path = [space.to_int(self.exam.tapes()[self.episode])]
        task = self.exam.task
        for cell in self.cells:
            path.append(task.family.step(path[-1], cell, self.rule, task.space))
        return path

    @property
    def is_won(self) -> bool:
        return self.tapes[-1] == 0

    @property
    def is_over(self) -> bool:
        return self.is_won or len(self.cells) == self.horizon


def start(
    split: str, length: int, horizon: int | None = None, rule: int | None = None, episode: int = 0
) -> Game:
    """A game from an exam tape; without a rule one is drawn that allows the tape to be solved."""
    length, episode = _integer("length", length), _integer("tape", episode)
    if not space.MIN_LENGTH <= length <= MAX_LENGTH:
        raise ValueError(f"length must be from {space.MIN_LENGTH} to {MAX_LENGTH}, not {length}")
    if not 0 <= episode < MAX_TAPES:
        raise ValueError(f"there are tapes 0 to {MAX_TAPES - 1}, not {episode}")
    steps = length if horizon is None else _integer("horizon", horizon)
    universe = splits.load(split).universe
    if rule is not None:
        number = universe.family.check_rule(rule)
        return Game(number, split, length, steps, episode, shown=("chosen",))
    for _ in range(DRAWS):
        # Not from `seeding`: what can be drawn again is not hidden.
        game = Game(
            universe.rules[secrets.randbelow(len(universe.rules))], split, length, steps, episode
        )
        if game.exam.optimal_steps()[0, episode] != IMPOSSIBLE:
            return game
    raise ValueError("no rule was found that allows this tape to be solved: name one")


def step_game(game: Game, cell: int) -> Game:
    """The game after one more step."""
    if game.is_over:
        raise ValueError("this game is over: begin another")
    if not 0 <= _integer("cell", cell) < game.length:
        raise ValueError(f"cells are 0 to {game.length - 1}, not {cell}")
    return replace(game, cells=(*game.cells, cell))


@dataclass(frozen=True)
class Hint:
    """What to flip next."""

    cell: int | None
    """None if no way to the goal in time is known."""
    steps: int | None
    """Steps of the way that begins so."""
    is_proved: bool
    """Whether it is a shortest way, or none is proved to exist; else it is what search found."""


def hint(game: Game) -> Hint:
    """A best move under the true rule: exact for short tapes, searched for longer ones.

    At 32 cells a proved way from the exam's tapes is shipped, and is followed while the game does.
    """
    left, tape = game.horizon - len(game.cells), game.tapes[-1]
    if game.is_over:
        raise ValueError("this game is over: begin another")
    if game.length <= EXACT_LENGTH:
        steps = _steps_to_goal(game.rule, game.length, game.horizon)
        if steps[tape] > left:
            return Hint(None, None, True)
        return Hint(exact.best_cell(tape, game.rule, game.length, steps), int(steps[tape]), True)
    shipped = _shipped_way(game)
    if shipped is not None and shipped[: len(game.cells)] == list(game.cells):
        return Hint(shipped[len(game.cells)], len(shipped) - len(game.cells), True)
    stream = seeding.Stream(*np.zeros((2, 1), np.uint32))
    way = beam.find_ways(
        np.array([tape], np.uint32),
        [left],
        game.rule,
        game.length,
        0,
        stream,
        passes=beam.PASSES[:3],
    )[0]
    return Hint(None, None, False) if way is None else Hint(way[0], len(way), False)


_steps_to_goal = cache(exact.steps_to_goal)


def _shipped_way(game: Game) -> list[int] | None:
    """The proved shortest way from the game's tape, where one is shipped: the exam at 32 cells."""
    answer = exact.exam_answers().get(game.rule) if game.length == exact.MAX_LENGTH else None
    if answer is None or answer["exam_version"] != seeding.EXAM_VERSION:
        return None
    ways = answer["exam_witnesses"]
    way = ways[game.episode] if game.episode < len(ways) else None
    return way if way is not None and len(way) <= game.horizon else None


def play_baselines(game: Game) -> list[dict[str, Any]]:
    """What the evaluator sees the baselines make of the same tape under the same rule."""
    task = game.exam.task
    return [
        _outcome(name, rollout(policy.make(name, task), task, None, game.episode + 1), game)
        for name in BASELINES
    ]


def compare_with_others(
    game: Game,
    bundles: Sequence[Bundle] = (),
    play_baselines: Callable[[Game], list[dict[str, Any]]] = play_baselines,
) -> dict[str, Any]:
    """What became of the same tape under the same rule with others; reveals the rule."""
    if not game.is_over:
        raise ValueError("finish the game first: comparing reveals its rule")
    rows = [
        {
            "who": "you, rule shown" if game.shown else "you",
            "success": game.is_won,
            "steps": len(game.cells),
            "distance": game.tapes[-1].bit_count() / game.length,
        },
        *play_baselines(game),
    ]
    for other in bundles:
        task = other.exam.task
        is_same = (
            (task.length, task.horizon, task.goal, task.noise) == (game.length, game.horizon, 0, 0)
            and (other.exam.name, other.exam.trials) == (STANDARD, 1)
            and game.rule in task.rules
            and not task.schedule.switches
            and game.episode < other.exam.episodes
        )
        if is_same:
            rows.append(_outcome(other.about["policy"], other.episodes, game))
    fewest = int(game.exam.optimal_steps()[0, game.episode])
    return {
        "rule": game.rule,
        "type": game.exam.universe.types[game.rule],
        "held_out": game.rule in game.exam.test,
        "fewest": fewest if fewest >= 0 else None,
        "is_impossible": fewest == IMPOSSIBLE,
        "rows": rows,
    }


def _outcome(name: str, episodes: Episodes, game: Game) -> dict[str, Any]:
    row = int(np.flatnonzero(episodes.rules == game.rule)[0]), game.episode
    return {
        "who": name,
        "success": bool(episodes.success[row]),
        "steps": int(episodes.steps[row]),
        "distance": float(episodes.final_distance[row]),
    }


def save_games(
    games: Sequence[Game],
    folder: Path,
    name: str = "human",
    provenance: dict[str, Any] | None = None,
) -> Path:
    """Finished games as a bundle that `tape verify` accepts: one rule, tapes 0, 1, 2, ...

    The result says that it saw the rule if any of its moves was made after the rule was shown, and
    in `shown` how it was. The file is a new one, and its name has the rule only if that is known.
    """
    by_tape = {game.episode: game for game in games if game.is_over}
    played = [by_tape[number] for number in range(len(by_tape)) if number in by_tape]
    if not played or len(played) < len(by_tape):
        raise ValueError("finish the first tape, and those after it, before saving")
    if len({(game.rule, game.split, game.length, game.horizon) for game in played}) > 1:
        raise ValueError("a bundle holds games under one rule and of one size: save them apart")
    last = played[-1]
    actions = np.zeros((1, len(played), last.horizon), np.int64)
    for number, game in enumerate(played):
        actions[0, number, : len(game.cells)] = game.cells
    shown = list(dict.fromkeys(way for game in played for way in game.shown))
    about = {
        "policy": name,
        "sees_rule": bool(shown),
        "shown": shown,
        "provenance": files.provenance() if provenance is None else provenance,
    }
    episodes = bundle.replay(actions, last.exam, name)
    rule = f"-rule{last.rule:03d}" if NAMING.intersection(shown) else ""
    path = _reserve(folder, f"{name}{rule}-L{last.length}-{len(played)}")
    try:
        bundle.write(path, episodes, last.exam, about, Conditions("by hand"))
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return path


def _reserve(folder: Path, stem: str) -> Path:
    """An empty file under the first free name: made only if nothing has that name yet."""
    number = 1
    while True:
        path = folder / (f"{stem}-{number}.tape" if number > 1 else f"{stem}.tape")
        try:
            path.touch(exist_ok=False)
            return path
        except FileExistsError:
            number += 1
        except OSError as error:
            raise ValueError(f"cannot write {path}: {error.strerror}") from None


class RuleGames:
    """One rule with its games, a game for each tape, and what the player has been shown of it.

    May be used from several threads. A tape is played once: asked for again, it is the same game,
    so that nobody can try a move or take a hint on a double of it.
    """

    def __init__(self, first: Game) -> None:
        self._lock = threading.Lock()
        self._games = {first.episode: first}
        self._shown = first.shown

    @property
    def shown(self) -> tuple[Way, ...]:
        """How the rule was shown, in order; empty while it is hidden."""
        return self._shown

    def game(self, episode: int) -> Game:
        """The game on a tape, as far as it is."""
        return self._games[episode]

    def __contains__(self, episode: int) -> bool:
        return episode in self._games

    def show(self, way: Way) -> None:
        """Record that the player knows the rule from now on."""
        with self._lock:
            self._note(way)

    def _note(self, way: Way) -> None:
        if way not in self._shown:
            self._shown = (*self._shown, way)

    def flip(self, episode: int, cell: int) -> Game:
        """Make a move, and record what the player knows of the rule."""
        with self._lock:
            game = replace(step_game(self._games[episode], cell), shown=self._shown)
            self._games[episode] = game
            return game

    def follow(self, episode: int) -> Game:
        """The game on the tape after this one, begun if it has not been yet."""
        if episode + 1 >= MAX_TAPES:
            raise ValueError(f"that was the last of {MAX_TAPES} tapes: begin another game")
        with self._lock:
            game = replace(self._games[episode], episode=episode + 1, cells=(), shown=self._shown)
            return self._games.setdefault(episode + 1, game)

    def save(self, episode: int, folder: Path) -> Path:
        """Save the games up to this tape. The file holds the rule, so it counts as shown.

        No move is made until that is noted.
        """
        provenance = files.provenance()  # asks git, which may take its time
        with self._lock:
            games = [game for number, game in self._games.items() if number <= episode]
            path = save_games(games, folder, provenance=provenance)
            self._note("save")
            return path


def _integer(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{name} must be a whole number, not {str(value)[:40]!r}")
    return value
