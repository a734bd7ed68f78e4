"""What takes long, in a process of its own: best moves, and the baselines on a tape.

The process can be killed at any moment, which a thread that compiles a program cannot: an
interpreter that ends under it aborts. It takes one JSON document per line and answers with one,
has a session of its own, so that Ctrl-C in the terminal is not for it, and ends when nobody asks
any more.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from tapebench.play import game as games
from tapebench.play.game import Game, Hint
from tapebench.runs import sweep, training

START = "from tapebench.play.worker import main; main()"


class Worker:
    """The process, seen from the server: started when it is needed, one question at a time."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._state = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_closed = False

    def hint(self, game: Game) -> Hint:
        """`tapebench.play.hint`, over there."""
        return Hint(**self._ask("hint", game))

    def play_baselines(self, game: Game) -> list[dict[str, Any]]:
        """`tapebench.play.play_baselines`, over there."""
        rows: list[dict[str, Any]] = self._ask("play_baselines", game)
        return rows

    def start(self) -> subprocess.Popen[bytes]:
        """The process, started unless it runs; before it is needed that saves a wait."""
        with self._state:
            if self._is_closed:
                raise ValueError("the game has ended: start `tape play` again")
            if self._process is not None and self._process.poll() is not None:
                self._dispose(self._process)
                self._process = None
            if self._process is None:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-c", START],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    start_new_session=True,
                )
            return self._process

    def close(self) -> None:
        """Kill the process, whatever it is at; who waits for an answer is told so."""
        with self._state:
            self._is_closed = True
            process = self._process
        if process is not None:
            process.kill()
            with self._turn:
                self._dispose(process)

    def _ask(self, call: str, game: Game) -> Any:
        with self._turn:
            process = self.start()
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                document = json.dumps({"call": call, "game": asdict(game)})
                process.stdin.write(document.encode() + b"\n")
                process.stdin.flush()
                line = process.stdout.readline()
            except BrokenPipeError:
                line = b""
            if not line:
                process.wait()
        if not line:
            raise ValueError("the computation was ended: ask again")
        answer = json.loads(line)
        if "error" in answer:
            raise ValueError(answer["error"])
        return answer["answer"]

    @staticmethod
    def _dispose(process: subprocess.Popen[bytes]) -> None:
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):  # a question that it did not live to hear
                    pipe.close()


def _answer(call: str, game: dict[str, Any]) -> dict[str, Any]:
    position = Game(**{**game, "cells": tuple(game["cells"]), "shown": tuple(game["shown"])})
    try:
        if call == "hint":
            return {"answer": asdict(games.hint(position))}
        return {"answer": games.play_baselines(position)}
    except Exception as error:
        return {"error": sweep.in_a_line(error)}


def main() -> None:
    """Answer questions from standard input until there are no more."""
    # What a library prints must not get between the answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    training.use_compilation_cache()
    for line in sys.stdin:
        answers.write(json.dumps(_answer(**json.loads(line))) + "\n")
