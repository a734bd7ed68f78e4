"""The server of the game: the loopback address only, for whoever has its token.

It answers only requests that name it and come from its own page, serves one page and a handful of
calls, and reads no file on anybody's behalf. Requests have a thread each; none of them computes
for long, see `tapebench.play.worker`, so that the server can end at any moment.
"""

from __future__ import annotations

import hmac
import json
import secrets
import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from tapebench.exam.bundle import Bundle
from tapebench.play.game import MAX_LENGTH, NAMING, Game, RuleGames, compare_with_others, start
from tapebench.play.page import local_worlds, render
from tapebench.play.worker import Worker

HOST = "127.0.0.1"
MAX_BODY = 1 << 16
MAX_WORLDS = 100


@dataclass
class Session:
    """The worlds of a server, and where results go. Answers several threads at a time."""

    split: str
    length: int
    horizon: int | None
    rule: int | None
    out: Path
    bundles: tuple[Bundle, ...] = ()
    worlds: dict[str, RuleGames] = field(default_factory=dict)
    """By a key that cannot be guessed; what was used last comes last."""
    worker: Worker = field(default_factory=Worker)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    """For `worlds`; a world has a lock of its own."""

    def answer(self, call: str, message: dict[str, Any]) -> dict[str, Any]:
        """What a call of the page comes to; `ValueError` says what is wrong with it."""
        if call == "new":
            return self._new(message)
        key, world, episode = self._find(message.get("game"))
        if call == "next":
            return _view(key, world, world.follow(episode))
        if call == "flip":
            return _view(key, world, world.flip(episode, message.get("cell")))  # type: ignore[arg-type]
        document: dict[str, Any]
        if call == "hint":
            document = asdict(self.worker.hint(world.game(episode)))
            world.show("hint")
        elif call == "compare":
            game = world.game(episode)
            document = compare_with_others(game, self.bundles, self.worker.play_baselines)
            world.show("compare")
        elif call == "name":
            game = world.game(episode)
            guess = game.exam.universe.family.check_rule(message.get("rule"))
            document = {"rule": game.rule, "is_right": guess == game.rule}
            world.show("name")
        else:
            document = {"saved": str(world.save(episode, self.out))}
        return {**document, "view": _view(key, world, world.game(episode))}

    def _new(self, message: dict[str, Any]) -> dict[str, Any]:
        rule = message.get("rule", self.rule)
        length = message.get("length", self.length)
        horizon = self.horizon if length == self.length else None
        game = start(self.split, length, horizon, rule)
        key, world = secrets.token_hex(8), RuleGames(game)
        with self._lock:
            while len(self.worlds) >= MAX_WORLDS:
                del self.worlds[next(iter(self.worlds))]
            self.worlds[key] = world
        return _view(key, world, game)

    def _find(self, name: Any) -> tuple[str, RuleGames, int]:
        """The key, the world and the tape that the name of a game stands for."""
        key, _, number = name.partition("-") if isinstance(name, str) else ("", "", "")
        with self._lock:
            world = self.worlds.pop(key, None)
            if world is not None:
                self.worlds[key] = world
        is_number = number.isascii() and number.isdigit() and len(number) < 10
        if world is None or not is_number or int(number) not in world:
            raise ValueError("there is no such game: begin another")
        return key, world, int(number)


def _view(key: str, world: RuleGames, game: Game) -> dict[str, Any]:
    """What the page may know of a game."""
    shown = world.shown
    return {
        "game": f"{key}-{game.episode}",
        "world": key,
        "tapes": [f"{tape:0{game.length}b}"[::-1] for tape in game.tapes],
        "cells": list(game.cells),
        "horizon": game.horizon,
        "episode": game.episode,
        "shown": list(shown),
        "rule": game.rule if NAMING.intersection(shown) else None,
        "is_over": game.is_over,
        "is_won": game.is_won,
    }


CALLS = ("new", "next", "flip", "hint", "compare", "name", "save")


class Server(ThreadingHTTPServer):
    """Serves a session. Closing it leaves no thread and no process behind."""

    daemon_threads = False
    request_queue_size = 128

    def __init__(self, session: Session, port: int) -> None:
        self.session = session
        self.token = secrets.token_urlsafe(16)
        settings = {"length": session.length, "rule": session.rule, "longest": MAX_LENGTH}
        self.page = render(settings | local_worlds() | {"is_static": False}).encode()
        self._connections: set[socket.socket] = set()
        super().__init__((HOST, port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._connections.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is no event for the terminal."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    def server_close(self) -> None:
        """Drop pending computations and idle connections, and wait for the others."""
        self.session.worker.close()
        for connection in tuple(self._connections):
            try:
                connection.shutdown(socket.SHUT_RD)
            except OSError:
                continue  # it has just ended by itself
        super().server_close()


def make_server(session: Session, port: int = 0) -> Server:
    """A server on the loopback address; port 0 takes any that is free."""
    if not 0 <= port < 65536:
        raise ValueError(f"a port is a number from 0 to 65535, not {port}")
    try:
        return Server(session, port)
    except OSError as error:
        raise ValueError(f"cannot listen on port {port}: {error.strerror}") from None


def address(server: Server) -> str:
    """Where the page is, for those who may see it."""
    return f"http://{HOST}:{server.server_address[1]}/?token={server.token}"


class _Handler(BaseHTTPRequestHandler):
    """Requests that have the token, name this server and come from its own page; no others."""

    server: Server
    server_version = "tape"
    sys_version = ""
    timeout = 30

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        if self.is_ours(parse_qs(query).get("token", [""])[0]):
            if path == "/":
                self.reply(HTTPStatus.OK, self.server.page, "text/html; charset=utf-8")
            else:
                self.refuse(HTTPStatus.NOT_FOUND, "there is only the page /")

    def do_POST(self) -> None:
        call = self.path.removeprefix("/api/")
        if not self.is_ours(self.headers.get("Authorization", "").removeprefix("Bearer ")):
            return
        if not self.path.startswith("/api/") or call not in CALLS:
            self.refuse(HTTPStatus.NOT_FOUND, "there is no such call")
            return
        message = self.read_json()
        if message is not None:
            self.answer(lambda: self.server.session.answer(call, message))

    def is_ours(self, token: str) -> bool:
        """Refuse requests that were sent to another name, by another site's page, or by others.

        A site that points its own name at 127.0.0.1 would otherwise talk to this server, and so
        would every user of this machine.
        """
        names = [f"{name}:{self.server.server_address[1]}" for name in (HOST, "localhost")]
        origin = self.headers.get("Origin")
        is_named = self.headers.get("Host") in names
        if not is_named or origin not in (None, *(f"http://{name}" for name in names)):
            self.refuse(HTTPStatus.FORBIDDEN, "this server answers only to its own page")
        elif not hmac.compare_digest(token.encode(), self.server.token.encode()):
            reason = "open the whole address that `tape play` printed: it ends in a token"
            self.refuse(HTTPStatus.FORBIDDEN, reason)
        else:
            return True
        return False

    def read_json(self) -> dict[str, Any] | None:
        """The body of a call; None, and an answer, if it is none."""
        length = self.headers.get("Content-Length", "")
        kind = self.headers.get("Content-Type", "")
        if kind != "application/json" or not length.isascii() or not length.isdigit():
            self.refuse(HTTPStatus.BAD_REQUEST, "send a JSON document")
        elif len(length) > 9 or int(length) > MAX_BODY:
            self.refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "that is too much")
        else:
            try:
                message = json.loads(self.rfile.read(int(length)))
                if isinstance(message, dict):
                    return message
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
        if self.command == "GET":
            self.reply(status, f"{reason}\n".encode(), "text/plain; charset=utf-8")
        else:
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
