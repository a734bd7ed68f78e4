"""The tape as a game: on the exam's own tapes, with hints, comparisons, and a result that counts.

Games live in this process and are stepped here, so that a hidden rule is hidden from the page as
well. The server listens on the loopback address only, answers only requests that name it, serves
one page and a handful of calls, and reads no file on anybody's behalf.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np

from tapebench import bundle, dynamics, exact, references, rules, seeding, store
from tapebench.bundle import Bundle
from tapebench.exam import IMPOSSIBLE, STANDARD, Exam, make_exam
from tapebench.references import search
from tapebench.report.page import assemble
from tapebench.rollout import Episodes, rollout
from tapebench.seating import Conditions

HOST = "127.0.0.1"
MAX_BODY = 1 << 16
MAX_GAMES = 1000
MAX_LENGTH = 32
"""Longest tape to play: what search takes, and about what fits on a screen."""

EXACT_LENGTH = 16
"""Hints are proved best moves up to here; beyond they are what search finds."""

BESIDE = ("random", "flip-ones", "greedy")
"""Who also plays the same tape when a game is over."""

DRAWS = 64
"""Attempts to find a hidden rule under which the tape can be solved."""


@dataclass(frozen=True)
class Game:
    """One episode in progress."""

    rule: int
    is_hidden: bool
    split: str
    length: int
    horizon: int
    episode: int = 0
    """Which of the exam's start tapes."""
    cells: tuple[int, ...] = ()
    """The flips so far."""
    was_helped: bool = False
    """Whether a best move was asked for: such a result has seen the rule."""

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
        found = [dynamics.to_int(self.exam.tapes()[self.episode])]
        for cell in self.cells:
            found.append(dynamics.step(found[-1], cell, self.rule, self.length))
        return found

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
    if not dynamics.MIN_LENGTH <= length <= MAX_LENGTH:
        raise ValueError(f"length must be from {dynamics.MIN_LENGTH} to {MAX_LENGTH}, not {length}")
    if not 0 <= episode < 1000:
        raise ValueError(f"there are tapes 0 to 999, not {episode}")
    steps = length if horizon is None else _integer("horizon", horizon)
    if rule is not None:
        return Game(dynamics.check_rule(rule), False, split, length, steps, episode)
    for _ in range(DRAWS):
        # Not from `seeding`: what can be drawn again is not hidden.
        game = Game(secrets.randbelow(dynamics.NUM_RULES), True, split, length, steps, episode)
        if game.exam.optimal_steps()[0, episode] != IMPOSSIBLE:
            return game
    raise ValueError("no rule was found that allows this tape to be solved: name one")


def flip(game: Game, cell: int) -> Game:
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
    way = search.find_ways(
        np.array([tape], np.uint32),
        [left],
        game.rule,
        game.length,
        0,
        stream,
        passes=search.PASSES[:3],
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


def compare(game: Game, bundles: Sequence[Bundle] = ()) -> dict[str, Any]:
    """What became of the same tape under the same rule with others; reveals the rule."""
    if not game.is_over:
        raise ValueError("finish the game first: comparing reveals its rule")
    rows = [
        {
            "who": "you, with hints" if game.was_helped else "you",
            "success": game.is_won,
            "steps": len(game.cells),
            "distance": game.tapes[-1].bit_count() / game.length,
        }
    ]
    for name in BESIDE:
        policy = references.make(name, game.exam.task)
        rows.append(_outcome(name, rollout(policy, game.exam.task, None, game.episode + 1), game))
    for other in bundles:
        task = other.exam.task
        is_same = (
            (task.length, task.horizon, task.goal, task.noise) == (game.length, game.horizon, 0, 0)
            and (other.exam.name, other.exam.trials) == (STANDARD, 1)
            and game.rule in task.rules
            and game.episode < other.exam.episodes
        )
        if is_same:
            rows.append(_outcome(other.about["policy"], other.episodes, game))
    fewest = int(game.exam.optimal_steps()[0, game.episode])
    return {
        "rule": game.rule,
        "type": rules.table()[game.rule].type,
        "held_out": game.rule in game.exam.test,
        "fewest": fewest if fewest >= 0 else None,
        "is_impossible": fewest == IMPOSSIBLE,
        "rows": rows,
    }


def _outcome(who: str, episodes: Episodes, game: Game) -> dict[str, Any]:
    at = int(np.flatnonzero(episodes.rules == game.rule)[0]), game.episode
    return {
        "who": who,
        "success": bool(episodes.success[at]),
        "steps": int(episodes.steps[at]),
        "distance": float(episodes.final_distance[at]),
    }


def save(games: Sequence[Game], place: Path, name: str = "human") -> Path:
    """Finished games as a bundle that `tape verify` accepts: one rule, tapes 0, 1, 2, ...

    The result says that it saw the rule if it was shown, or if a hint was taken.
    """
    by_tape = {game.episode: game for game in games if game.is_over}
    played = [by_tape[number] for number in range(len(by_tape)) if number in by_tape]
    if not played or len(played) < len(by_tape):
        raise ValueError("finish the first tape, and those after it, before saving")
    worlds = {(game.rule, game.split, game.length, game.horizon) for game in played}
    if len(worlds) > 1:
        raise ValueError("a bundle holds games under one rule and of one size: save them apart")
    last = played[-1]
    actions = np.zeros((1, len(played), last.horizon), np.int64)
    for number, game in enumerate(played):
        actions[0, number, : len(game.cells)] = game.cells
    about = {
        "policy": name,
        "sees_rule": any(game.was_helped or not game.is_hidden for game in played),
        "provenance": store.provenance(),
    }
    stem = f"{name}-rule{last.rule:03d}-L{last.length}-{len(played)}"
    taken = len(list(place.glob(f"{stem}*.tape")))
    path = place / (f"{stem}-{taken + 1}.tape" if taken else f"{stem}.tape")
    episodes = bundle.replay(actions, last.exam, name)
    bundle.write(path, episodes, last.exam, about, Conditions("by hand"))
    return path


def _integer(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{name} must be a whole number, not {str(value)[:40]!r}")
    return value


# The server


@dataclass
class Table:
    """The games of a server, and where results go."""

    split: str
    length: int
    horizon: int | None
    rule: int | None
    out: Path
    bundles: tuple[Bundle, ...] = ()
    games: dict[str, Game] = field(default_factory=dict)

    def answer(self, call: str, asked: dict[str, Any]) -> dict[str, Any]:
        """What a call of the page comes to; `ValueError` says what is wrong with it."""
        if call == "new":
            return self._new(asked)
        key = asked.get("game")
        if not isinstance(key, str) or key not in self.games:
            raise ValueError("there is no such game: begin another")
        game = self.games[key]
        if call == "next":
            again = Game(
                game.rule, game.is_hidden, game.split, game.length, game.horizon, game.episode + 1
            )
            return self._view(self._keep(again))
        if call == "flip":
            self.games[key] = flip(game, asked.get("cell"))  # type: ignore[arg-type]
            return self._view(key)
        if call == "hint":
            found = hint(game)
            self.games[key] = replace(game, was_helped=True)
            return {"cell": found.cell, "steps": found.steps, "is_proved": found.is_proved}
        if call == "compare":
            return compare(game, self.bundles)
        return {"saved": str(save(self._same_world(game), self.out))}

    def _new(self, asked: dict[str, Any]) -> dict[str, Any]:
        rule = asked.get("rule", self.rule)
        length = asked.get("length", self.length)
        horizon = self.horizon if length == self.length else None
        return self._view(self._keep(start(self.split, length, horizon, rule)))

    def _keep(self, game: Game) -> str:
        """Remember a game; the oldest is forgotten when there are too many."""
        while len(self.games) >= MAX_GAMES:
            del self.games[next(iter(self.games))]
        key = secrets.token_hex(8)
        self.games[key] = game
        return key

    def _same_world(self, game: Game) -> list[Game]:
        """Games under the same rule up to this one; of a tape played again the later one."""
        return [
            other
            for other in self.games.values()
            if (other.rule, other.is_hidden, other.length, other.horizon)
            == (game.rule, game.is_hidden, game.length, game.horizon)
            and other.episode <= game.episode
        ]

    def _view(self, key: str) -> dict[str, Any]:
        """What the page may know of a game."""
        game = self.games[key]
        return {
            "game": key,
            "tapes": [f"{tape:0{game.length}b}"[::-1] for tape in game.tapes],
            "cells": list(game.cells),
            "horizon": game.horizon,
            "episode": game.episode,
            "rule": None if game.is_hidden else game.rule,
            "is_over": game.is_over,
            "is_won": game.is_won,
        }


CALLS = ("new", "next", "flip", "hint", "compare", "save")


def make_server(table: Table, port: int = 0) -> ThreadingHTTPServer:
    """A server on the loopback address; port 0 takes any that is free."""
    if not 0 <= port < 65536:
        raise ValueError(f"a port is a number from 0 to 65535, not {port}")
    page = assemble("TAPE: play", BODY, _settings(table), "play.js").encode()

    class Handler(_Handler):
        def do_GET(self) -> None:
            if self.is_ours():
                if self.path == "/":
                    self.reply(HTTPStatus.OK, page, "text/html; charset=utf-8")
                else:
                    self.refuse(HTTPStatus.NOT_FOUND, "there is only the page /")

        def do_POST(self) -> None:
            call = self.path.removeprefix("/api/")
            if not self.is_ours():
                return
            if not self.path.startswith("/api/") or call not in CALLS:
                self.refuse(HTTPStatus.NOT_FOUND, "there is no such call")
                return
            asked = self.read_json()
            if asked is not None:
                self.answer(lambda: table.answer(call, asked))

    try:
        server = ThreadingHTTPServer((HOST, port), Handler)
    except OSError as error:
        raise ValueError(f"cannot listen on port {port}: {error.strerror}") from None
    server.daemon_threads = True
    return server


def address(server: ThreadingHTTPServer) -> str:
    """Where the page is."""
    return f"http://{HOST}:{server.server_address[1]}/"


class _Handler(BaseHTTPRequestHandler):
    """Requests that name this server and come from its own page; everything else is refused."""

    server_version = "tape"
    sys_version = ""
    timeout = 30

    def is_ours(self) -> bool:
        """Refuse requests that were sent to another name, or by the page of another site.

        A site that points its own name at 127.0.0.1 would otherwise talk to this server.
        """
        port = self.server.server_address[1]  # type: ignore[index]
        names = [f"{name}:{port}" for name in (HOST, "localhost")]
        origin = self.headers.get("Origin")
        is_named = self.headers.get("Host") in names
        if is_named and origin in (None, *(f"http://{name}" for name in names)):
            return True
        self.refuse(HTTPStatus.FORBIDDEN, "this server answers only to its own page")
        return False

    def read_json(self) -> dict[str, Any] | None:
        """The body of a call; None, and an answer, if it is none."""
        length = self.headers.get("Content-Length", "")
        kind = self.headers.get("Content-Type", "")
        if kind != "application/json" or not length.isascii() or not length.isdigit():
            self.refuse(HTTPStatus.BAD_REQUEST, "send a JSON document")
        elif int(length) > MAX_BODY:
            self.refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "that is too much")
        else:
            try:
                asked = json.loads(self.rfile.read(int(length)))
                if isinstance(asked, dict):
                    return asked
            except (ValueError, RecursionError):
                pass
            self.refuse(HTTPStatus.BAD_REQUEST, "send a JSON document")
        return None

    def answer(self, make: Callable[[], dict[str, Any]]) -> None:
        try:
            document = make()
        except (ValueError, OverflowError) as error:
            self.refuse(HTTPStatus.BAD_REQUEST, str(error))
            return
        self.reply(HTTPStatus.OK, json.dumps(document).encode(), "application/json")

    def refuse(self, status: HTTPStatus, reason: str) -> None:
        self.close_connection = True  # a body that was not read must not be taken for a request
        self.reply(status, json.dumps({"error": reason}).encode(), "application/json")

    def reply(self, status: HTTPStatus, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("X-Frame-Options", "DENY")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        """The terminal is for the address and for what was saved."""


def _settings(table: Table) -> dict[str, Any]:
    """What the page begins with."""
    return {"length": table.length, "rule": table.rule, "longest": MAX_LENGTH}


BODY = """<h1>TAPE</h1>
<p class=lead>Empty every cell. Each move flips one cell; then a law that you may not know updates
all cells at once, each by what it and its two neighbours on the ring are.</p>
<div id=game></div>
<p class=note>Keys: arrows choose a cell, Enter or space flips it, h asks for the best move, n takes
the next tape under the same law. Tapes are those of the exam, as agents are given them.</p>"""
