"""The game: what a move does, what help is worth, results that verify, a careful server."""

import http.client
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import asdict, replace

import pytest

from commands import tape
from stored_runs import EXAM, sit, store_bundle
from tapebench import play
from tapebench.base import files
from tapebench.exam import bundle
from tapebench.exam.exam import make_exam
from tapebench.physics import exact, space
from tapebench.physics.families import elementary
from tapebench.play import server as servers
from tapebench.play.page import LIFE, local_worlds
from tapebench.play.worker import Worker
from tapebench.tasks import splits


def ones(game):
    return [cell for cell in range(game.length) if game.tapes[-1] >> cell & 1]


def solve_204(game):
    """Under the identity every one has to be flipped once."""
    while not game.is_over:
        game = play.step_game(game, ones(game)[0])
    return game


# Games


def test_a_game_is_an_episode_of_the_exam():
    game = play.start("fps30", 8, rule=30, episode=2)
    exam = make_exam(rules=[30], length=8, horizon=8, episodes=3)
    assert game.tapes == [space.to_int(exam.tapes()[2])]
    after = play.step_game(play.step_game(game, 3), 7)
    assert after.tapes[1] == elementary.step(game.tapes[0], 3, 30, 8)
    assert after.cells == (3, 7)
    assert not game.cells


def test_the_identity_is_won_in_as_many_moves_as_there_are_ones():
    game = play.start("fps30", 8, rule=204)
    won = solve_204(game)
    assert won.is_won
    assert len(won.cells) == len(ones(game))
    with pytest.raises(ValueError, match="over"):
        play.step_game(won, 0)


def test_a_game_is_over_at_the_horizon():
    game = play.start("fps30", 8, horizon=3, rule=255)
    for _ in range(3):
        assert not game.is_over
        game = play.step_game(game, 0)
    assert game.is_over
    assert not game.is_won


def test_a_hidden_rule_allows_its_tape_to_be_solved():
    for _ in range(5):
        game = play.start("fps30", 6)
        assert game.shown == ()
        assert exact.steps_to_goal(game.rule, 6, 6)[game.tapes[0]] <= 6


@pytest.mark.parametrize("rule", [30, 108, 204])
def test_following_hints_is_a_shortest_way(rule):
    game = play.start("fps30", 10, rule=rule)
    fewest = int(exact.steps_to_goal(rule, 10, 10)[game.tapes[0]])
    while not game.is_over:
        advice = play.hint(game)
        assert advice.is_proved
        assert advice.steps == fewest - len(game.cells)
        game = play.step_game(game, advice.cell)
    assert game.is_won
    assert len(game.cells) == fewest


def test_a_hint_says_when_there_is_no_way():
    game = play.start("fps30", 8, rule=255)
    assert play.hint(game) == play.Hint(None, None, True)
    late = play.start("fps30", 12, horizon=1, rule=204)
    assert len(ones(late)) > 1
    assert play.hint(late) == play.Hint(None, None, True)


def test_a_proved_way_is_followed_on_the_exam_at_32_cells():
    game = play.start("fps30", 32, rule=30)
    fewest = int(game.exam.optimal_steps()[0, 0])
    while not game.is_over:
        advice = play.hint(game)
        assert advice.is_proved
        assert advice.steps == fewest - len(game.cells)
        game = play.step_game(game, advice.cell)
    assert game.is_won


def test_longer_tapes_are_searched_and_the_way_is_a_way():
    game = play.start("fps30", 20, rule=204)
    advice = play.hint(game)
    assert not advice.is_proved
    assert game.tapes[0] >> advice.cell & 1


def test_others_on_the_same_tape_are_compared_with(tmp_path):
    store_bundle(tmp_path / "a.tape")
    known = [bundle.verify(tmp_path / "a.tape")]
    game = solve_204(play.start("fps30", 8, rule=204))
    comparison = play.compare_with_others(game, known)
    rows = {row["who"]: row for row in comparison["rows"]}
    assert set(rows) == {"you, rule shown", "random", "flip-ones", "greedy", "first-one"}
    agent = sit("first-one", 0)
    place = list(EXAM.rules).index(204), 0
    assert rows["first-one"]["steps"] == agent.steps[place]
    assert rows["you, rule shown"]["success"]
    assert comparison["fewest"] == len(game.cells)
    with pytest.raises(ValueError, match="reveals its rule"):
        play.compare_with_others(play.start("fps30", 8, rule=204))


# What the player has been shown


class InProcess(Worker):
    """Answers at once; for tests whose subject is not the other process."""

    def hint(self, game):
        return play.hint(game)

    def play_baselines(self, game):
        return []


@pytest.fixture
def table(tmp_path):
    return play.Session("fps30", 8, None, None, tmp_path, worker=InProcess())


def ask_table(table, call, view, **fields):
    return table.answer(call, {"game": view["game"], **fields})


def begin_hidden(table, rule=204):
    """A hidden game whose rule the test knows: its start tapes are those of every rule."""
    world = play.RuleGames(play.Game(rule, "fps30", 8, 8))
    table.worlds["hidden"] = world
    return servers._view("hidden", world, world.game(0))


def finish(table, view):
    while not view["is_over"]:
        view = ask_table(table, "flip", view, cell=view["tapes"][-1].index("1"))
    return view


def saved(table, view):
    return bundle.verify(table.out / ask_table(table, "save", view)["saved"]).about


def test_a_blind_game_stays_blind_whatever_is_shown_after_it(table):
    first = finish(table, begin_hidden(table))
    assert first["shown"] == []
    assert first["rule"] is None
    shown = ask_table(table, "compare", first)["view"]
    assert shown["shown"] == ["compare"]
    assert shown["rule"] == 204
    about = saved(table, first)
    assert (about["sees_rule"], about["shown"]) == (False, [])


@pytest.mark.parametrize("way", ["compare", "save"])
def test_a_tape_that_is_begun_after_the_law_was_shown_is_not_blind(table, way):
    first = finish(table, begin_hidden(table))
    ask_table(table, way, first)
    second = ask_table(table, "next", first)
    assert second["shown"] == [way]
    about = saved(table, finish(table, second))
    assert (about["sees_rule"], about["shown"]) == (True, [way])


@pytest.mark.parametrize("way", ["compare", "save"])
def test_a_tape_that_is_continued_after_the_law_was_shown_is_not_blind(table, way):
    first = finish(table, begin_hidden(table))
    second = ask_table(table, "next", first)
    assert second["shown"] == []
    second = ask_table(table, "flip", second, cell=0)
    ask_table(table, way, first)
    about = saved(table, finish(table, second))
    assert (about["sees_rule"], about["shown"]) == (True, [way])


def test_a_hint_on_one_tape_counts_on_every_other_under_the_same_law(table):
    first = finish(table, begin_hidden(table))
    second = ask_table(table, "next", first)
    third = ask_table(table, "next", second)
    assert ask_table(table, "hint", third)["view"]["shown"] == ["hint"]
    about = saved(table, finish(table, second))
    assert (about["sees_rule"], about["shown"]) == (True, ["hint"])


def test_a_tape_has_no_double_to_try_moves_or_hints_on(table):
    first = finish(table, begin_hidden(table))
    second = ask_table(table, "next", first)
    moved = ask_table(table, "flip", second, cell=3)
    assert ask_table(table, "next", first) == moved
    ended = finish(table, moved)
    assert ask_table(table, "next", first) == ended
    assert saved(table, ended)["sees_rule"] is False


def test_a_rule_that_was_shown_in_one_world_is_hidden_in_the_next(table):
    first = begin_hidden(table)
    ask_table(table, "compare", finish(table, first))
    again = begin_hidden(table)
    assert again["shown"] == []
    assert saved(table, finish(table, again))["sees_rule"] is False


def test_what_was_not_answered_shows_nothing(table, monkeypatch):
    def fail(game):
        raise ValueError("the computation was ended: ask again")

    monkeypatch.setattr(table.worker, "hint", fail)
    monkeypatch.setattr(table.worker, "play_baselines", fail)
    monkeypatch.setattr(bundle, "write", lambda *parts: fail(None))
    view = begin_hidden(table)
    with pytest.raises(ValueError, match="reveals"):
        ask_table(table, "compare", view)
    with pytest.raises(ValueError, match="ask again"):
        ask_table(table, "hint", view)
    view = finish(table, view)
    for call in ("compare", "save"):
        with pytest.raises(ValueError, match="ask again"):
            ask_table(table, call, view)
    assert ask_table(table, "next", view)["shown"] == []
    assert not list(table.out.iterdir())


def test_nothing_that_is_answered_names_a_hidden_rule(table):
    """Two worlds that differ in their rule alone answer alike, up to the moves."""
    answers = []
    for rule in (204, 236):
        view = begin_hidden(table, rule)
        texts = [json.dumps(view)]
        hinted = ask_table(table, "hint", view)
        assert hinted["view"]["rule"] is None
        while not view["is_over"]:
            view = ask_table(table, "flip", view, cell=0)
        answer = ask_table(table, "save", view)
        assert answer["view"]["rule"] is None
        texts.append(answer["saved"])
        answers.append(texts)
        table.out.joinpath(answer["saved"]).unlink()
    assert answers[0] == answers[1]


def test_a_law_that_is_known_is_in_the_name_of_the_file(table):
    view = finish(table, table.answer("new", {"rule": 204}))
    assert (view["shown"], view["rule"]) == (["chosen"], 204)
    assert ask_table(table, "save", view)["saved"].endswith("human-rule204-L8-1.tape")
    hidden = finish(table, begin_hidden(table))
    assert ask_table(table, "save", hidden)["saved"].endswith("human-L8-1.tape")


# Results


def test_a_saved_result_verifies_and_says_what_was_seen(tmp_path, capsys):
    hidden = play.Game(204, "fps30", 8, 8)
    games = [solve_204(hidden), solve_204(replace(hidden, episode=1))]
    path = play.save_games(games, tmp_path)
    code, out, _ = tape(capsys, "verify", str(path), "--json")
    document = json.loads(out)
    assert code == 0
    assert document["policy"] == "human"
    assert document["episodes"] == 2
    assert not document["sees_rule"]
    for ways in (("chosen",), ("hint",), ("hint", "compare"), ("save",)):
        seen = [games[0], replace(games[1], shown=ways)]
        again = bundle.verify(play.save_games(seen, tmp_path))
        assert again.about["sees_rule"]
        assert again.about["shown"] == list(ways)
        assert again.episodes.success.all()
    assert len(list(tmp_path.glob("*.tape"))) == 5


def test_a_saved_result_never_replaces_another(tmp_path):
    game = solve_204(play.Game(204, "fps30", 8, 8))
    first, second = play.save_games([game], tmp_path), play.save_games([game], tmp_path)
    inode = second.stat().st_ino
    first.unlink()
    third, fourth = play.save_games([game], tmp_path), play.save_games([game], tmp_path)
    assert third == first
    assert fourth.name == "human-L8-1-3.tape"
    assert second.stat().st_ino == inode
    (tmp_path / "human-L8-1-4.tape").symlink_to(tmp_path / "elsewhere")
    assert play.save_games([game], tmp_path).name == "human-L8-1-5.tape"
    assert not (tmp_path / "elsewhere").exists()


def test_a_save_that_fails_leaves_nothing(tmp_path, monkeypatch):
    game = solve_204(play.Game(204, "fps30", 8, 8))

    def fail(path, data):
        raise ValueError("cannot write: No space left on device")

    monkeypatch.setattr(files, "write_bytes", fail)
    with pytest.raises(ValueError, match="No space"):
        play.save_games([game], tmp_path)
    assert not list(tmp_path.iterdir())
    with pytest.raises(ValueError, match="cannot write nowhere"):
        play.save_games([game], tmp_path.__class__("nowhere"))


def in_threads(count, act):
    """Call `act` from many threads at once; what it gave, and what it raised."""
    values, raised, barrier = [], [], threading.Barrier(count)

    def run(number):
        barrier.wait()
        try:
            values.append(act(number))
        except Exception as error:
            raised.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return values, raised


@pytest.mark.slow
def test_many_saves_at_once_are_as_many_files(tmp_path):
    game = solve_204(play.Game(204, "fps30", 8, 8))
    paths, raised = in_threads(160, lambda _: play.save_games([game], tmp_path))
    assert raised == []
    assert len(set(paths)) == 160
    assert set(tmp_path.iterdir()) == set(paths)
    for path in paths[::20]:
        bundle.verify(path)


def test_writers_of_one_file_do_not_meet(tmp_path):
    path = tmp_path / "file"
    _, raised = in_threads(40, lambda number: files.write_text(path, f"{number}\n" * 1000))
    assert raised == []
    assert len(set(path.read_text().split())) == 1
    assert list(tmp_path.iterdir()) == [path]


def test_what_is_not_finished_is_not_saved(tmp_path):
    begun = play.step_game(play.start("fps30", 8, rule=30), 0)
    second = solve_204(play.start("fps30", 8, rule=204, episode=1))
    for games in ([begun], [second], []):
        with pytest.raises(ValueError, match="before saving"):
            play.save_games(games, tmp_path)
    assert not list(tmp_path.iterdir())


# The process that computes


@pytest.mark.slow
def test_the_other_process_answers_as_this_one_does():
    game = play.start("fps30", 8, rule=30)
    over = solve_204(play.start("fps30", 8, rule=204, episode=1))
    worker = Worker()
    try:
        assert worker.hint(game) == play.hint(game)
        assert worker.play_baselines(over) == play.play_baselines(over)
        with pytest.raises(ValueError, match="this game is over"):
            worker.hint(over)
        worker.start().kill()
        worker.start().wait()
        assert worker.hint(game) == play.hint(game)
    finally:
        worker.close()
    with pytest.raises(ValueError, match="has ended"):
        worker.hint(game)


@pytest.mark.slow
def test_who_waits_for_an_answer_is_told_when_the_process_is_ended():
    worker, said = Worker(), []

    def wait():
        with pytest.raises(ValueError, match=r"(was|has) ended") as caught:
            worker.play_baselines(solve_204(play.start("fps30", 8, rule=204)))
        said.append(str(caught.value))

    waiting = [threading.Thread(target=wait) for _ in range(3)]
    for thread in waiting:
        thread.start()
    time.sleep(0.3)
    process = worker.start()
    worker.close()
    for thread in waiting:
        thread.join(10)
    assert len(said) == 3
    assert process.returncode == -signal.SIGKILL


# The server


def serve(table):
    made = play.make_server(table)
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    yield made
    made.shutdown()
    made.server_close()
    thread.join(10)
    assert not thread.is_alive()


@pytest.fixture
def server(tmp_path):
    yield from serve(play.Session("fps30", 8, None, None, tmp_path))


def ask(server, method, path, body=None, **headers):
    """A request as the page makes it, unless `headers` say otherwise; None leaves one out."""
    port = server.server_address[1]
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    headers_sent = {"Content-Type": "application/json", "Authorization": f"Bearer {server.token}"}
    headers_sent = {
        name: value for name, value in (headers_sent | headers).items() if value is not None
    }
    data = body if body is None or isinstance(body, bytes) else json.dumps(body)
    connection.request(method, path, data, headers_sent)
    answer = connection.getresponse()
    return answer.status, answer.read()


def call(server, name, **fields):
    status, body = ask(server, "POST", f"/api/{name}", fields)
    return status, json.loads(body)


def test_a_game_is_played_through_the_server_and_its_rule_stays_hidden(server, tmp_path):
    assert server.server_address[0] == "127.0.0.1"
    _, view = call(server, "new", rule=None, length=8)
    assert view["rule"] is None
    assert view["shown"] == []
    status, page = ask(server, "GET", f"/?token={server.token}")
    assert status == 200
    assert b"play.js" not in page
    assert server.token.encode() not in page
    _, view = call(server, "new", rule=204, length=8)
    while not view["is_over"]:
        _, view = call(server, "flip", game=view["game"], cell=view["tapes"][-1].index("1"))
    assert view["is_won"]
    _, following = call(server, "next", game=view["game"])
    assert following["episode"] == 1
    assert following["tapes"] != view["tapes"][:1]
    _, answer = call(server, "save", game=view["game"])
    assert bundle.verify(tmp_path / answer["saved"]).episodes.success.all()


@pytest.mark.slow
def test_hints_and_comparisons_come_through_the_server(server):
    _, view = call(server, "new", rule=0, length=8)
    game = play.start("fps30", 8, rule=0)
    status, hinted = call(server, "hint", game=view["game"])
    assert status == 200
    assert {name: hinted[name] for name in ("cell", "steps", "is_proved")} == asdict(
        play.hint(game)
    )
    call(server, "flip", game=view["game"], cell=0)
    status, compared = call(server, "compare", game=view["game"])
    assert status == 200
    over = replace(play.step_game(game, 0), shown=("chosen", "hint"))
    assert {k: v for k, v in compared.items() if k != "view"} == play.compare_with_others(over)
    assert compared["view"]["shown"] == ["chosen", "hint", "compare"]


def test_many_requests_at_once_lose_no_move_and_no_save(server, tmp_path):
    _, view = call(server, "new", rule=255, length=32)
    answers, raised = in_threads(40, lambda _: call(server, "flip", game=view["game"], cell=0))
    assert raised == []
    made = [answer for status, answer in answers if status == 200]
    assert sorted(len(answer["cells"]) for answer in made) == list(range(1, 33))
    answers, raised = in_threads(40, lambda _: call(server, "save", game=view["game"]))
    assert raised == []
    names = [answer["saved"] for status, answer in answers if status == 200]
    assert len(names) == 40
    assert sorted(map(str, tmp_path.iterdir())) == sorted(names)


def test_moves_are_made_while_a_comparison_runs(tmp_path):
    started, go_on = threading.Event(), threading.Event()

    class Slow(Worker):
        def play_baselines(self, game):
            started.set()
            assert go_on.wait(60)
            return []

    for server in serve(play.Session("fps30", 8, None, 204, tmp_path, worker=Slow())):
        _, view = call(server, "new", rule=0, length=8)
        call(server, "flip", game=view["game"], cell=0)
        thread = threading.Thread(target=call, args=(server, "compare"), kwargs=view)
        thread.start()
        assert started.wait(60)
        _, second = call(server, "next", game=view["game"])
        assert call(server, "flip", game=second["game"], cell=1)[0] == 200
        assert call(server, "new", rule=None, length=8)[0] == 200
        go_on.set()
        thread.join(60)


@pytest.mark.parametrize("token", [None, "", "wrong", "ünrecht"])
def test_nothing_is_for_those_who_do_not_have_the_token(server, token):
    for path in ("/", "/etc/passwd"):
        query = "" if token is None else "?token=" + token.encode().hex()[:8]
        status, body = ask(server, "GET", path + query)
        assert status == 403
        assert body.count(b"\n") == 1
        assert b"address that `tape play` printed" in body
    for name in (*servers.CALLS, "unknown"):
        header = None if token is None else f"Bearer {token}".encode()
        status, body = ask(server, "POST", f"/api/{name}", {}, Authorization=header)
        assert status == 403
        assert "token" in json.loads(body)["error"]
    assert server.session.worlds == {}
    assert ask(server, "POST", f"/api/new?token={server.token}", {}, Authorization=None)[0] == 403


def test_every_server_has_a_token_of_its_own(tmp_path):
    made = [play.make_server(play.Session("fps30", 8, None, None, tmp_path)) for _ in range(2)]
    tokens = {server.token for server in made}
    for server in made:
        assert play.address(server).endswith(f"/?token={server.token}")
        server.server_close()
    assert len(tokens) == 2
    assert all(len(token) >= 20 for token in tokens)


def test_a_client_that_hangs_up_is_not_heard_of(server, capfd):
    host, port = server.server_address
    head = f"Host: {host}:{port}\r\nAuthorization: Bearer {server.token}\r\n"
    requests = [
        f"GET /?token={server.token} HTTP/1.1\r\n{head}\r\n",
        f"POST /api/new HTTP/1.1\r\n{head}Content-Type: application/json\r\n"
        "Content-Length: 2\r\n\r\n{}",
        f"POST /api/new HTTP/1.1\r\n{head}Content-Type: application/json\r\n"
        "Content-Length: 99\r\n\r\n{",
        "GET / HT",
        "",
    ]
    for request in requests * 5:
        client = socket.create_connection((host, port))
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.sendall(request.encode())
        client.close()
    assert call(server, "new")[0] == 200
    server.shutdown()
    server.server_close()
    assert capfd.readouterr() == ("", "")


def test_a_server_that_closes_waits_for_nobody_who_says_nothing(tmp_path):
    server = play.make_server(play.Session("fps30", 8, None, None, tmp_path))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    silent = [socket.create_connection(server.server_address) for _ in range(3)]
    silent[0].sendall(b"POST /api/new HTTP/1.1\r\n")
    call(server, "new")
    begun = time.monotonic()
    server.shutdown()
    server.server_close()
    assert time.monotonic() - begun < 10
    thread.join()
    for client in silent:
        client.close()


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/../../etc/passwd"),
        ("GET", "/etc/passwd"),
        ("GET", "//etc/passwd"),
        ("GET", "/%2e%2e/etc/passwd"),
        ("GET", "/api/new"),
        ("POST", "/"),
        ("POST", "/api/../x"),
        ("POST", "/api/unknown"),
    ],
)
def test_there_is_nothing_but_the_page_and_its_calls(server, method, path):
    query = f"?token={server.token}" if method == "GET" else ""
    status, body = ask(server, method, path + query, None if method == "GET" else {})
    assert status == 404
    assert b"root:" not in body


@pytest.mark.parametrize(
    "headers",
    [{"Host": "evil.example"}, {"Host": "127.0.0.1"}, {"Origin": "http://evil.example"}],
)
def test_requests_of_other_sites_are_refused(server, headers):
    for method, path in (("GET", f"/?token={server.token}"), ("POST", "/api/new")):
        status, body = ask(server, method, path, None if method == "GET" else {}, **headers)
        assert status == 403
        assert b"<html" not in body


def test_bad_calls_are_answered_in_one_line(server):
    for body in (b"junk", b"[1]", b"", b"[" * 5000):
        assert ask(server, "POST", "/api/new", body)[0] == 400
    assert ask(server, "POST", "/api/new", {}, **{"Content-Type": "text/plain"})[0] == 400
    assert ask(server, "POST", "/api/new", b"x" * (play.MAX_BODY + 1))[0] == 413
    assert ask(server, "POST", "/api/new", {}, **{"Content-Length": "9" * 5000})[0] == 413
    assert ask(server, "PUT", "/", {})[0] == 501
    for name, fields, said in (
        ("new", {"rule": 256, "length": 8}, "0 to 255"),
        ("new", {"rule": "30", "length": 8}, "integer"),
        ("new", {"rule": 30, "length": 10**9}, "from 3 to 32"),
        ("new", {"rule": 30, "length": 8.5}, "whole number"),
        ("flip", {"game": "none", "cell": 0}, "no such game"),
        ("flip", {"game": None, "cell": 0}, "no such game"),
    ):
        status, answer = call(server, name, **fields)
        assert status == 400
        assert said in answer["error"]
    _, view = call(server, "new", rule=30, length=8)
    for cell in (-1, 8, None, "0", True, 1.0):
        assert call(server, "flip", game=view["game"], cell=cell)[0] == 400
    for name in (view["game"][:-1], view["game"][:-1] + "1", view["game"] + "0" * 5000):
        assert call(server, "flip", game=name, cell=0)[0] == 400
    assert call(server, "flip", game=view["game"], cell=0)[0] == 200


def test_worlds_that_were_not_played_in_for_long_are_forgotten(monkeypatch, table):
    monkeypatch.setattr(servers, "MAX_WORLDS", 3)
    first = table.answer("new", {"rule": 255})
    for _ in range(4):
        table.answer("new", {})
        ask_table(table, "flip", first, cell=0)
    assert len(table.worlds) == 3
    assert first["world"] in table.worlds
    forgotten = table.answer("new", {})
    for _ in range(3):
        table.answer("new", {})
    with pytest.raises(ValueError, match="no such game"):
        ask_table(table, "flip", forgotten, cell=0)


def test_there_is_a_last_tape(monkeypatch):
    world = play.RuleGames(play.Game(204, "fps30", 8, 8, episode=998))
    world.follow(998)
    with pytest.raises(ValueError, match="last of 1000 tapes"):
        world.follow(999)


# The command


class Running:
    """`tape play` in a process of its own."""

    def __init__(self, *options):
        command = [sys.executable, "-c", "from tapebench.cli import main; main()", "play"]
        self.process = subprocess.Popen(
            [*command, *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        line = self.process.stdout.readline()
        match = re.fullmatch(
            r"play at http://127\.0\.0\.1:(\d+)/\?token=([\w-]+) \(Ctrl-C ends it\)\n", line
        )
        assert match, self.process.stderr.read()
        self.server_address, self.token = ("127.0.0.1", int(match[1])), match[2]

    def interrupt(self, times=1):
        """Press Ctrl-C, for every process of the terminal; the exit code and what it said."""
        for _ in range(times):
            os.killpg(self.process.pid, signal.SIGINT)
            time.sleep(0.02)
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, out, err

    def __enter__(self):
        return self

    def __exit__(self, *reason):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.process.stderr.close()


@pytest.mark.slow
def test_the_command_says_where_it_is_and_ends_cleanly_on_ctrl_c(tmp_path):
    with Running("--rule", "204", "--length", "8", "--out", str(tmp_path)) as running:
        assert running.interrupt() == (0, "", "stopped\n")


@pytest.mark.slow
def test_the_command_ends_cleanly_when_it_is_terminated(tmp_path):
    with Running("--out", str(tmp_path)) as running:
        call(running, "new")
        running.process.terminate()
        out, err = running.process.communicate(timeout=60)
    assert (running.process.returncode, out, err) == (0, "", "stopped\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    "delay",
    [
        delay if delay in (0.0, 1.0, 2.5) else pytest.param(delay, marks=pytest.mark.nightly)
        for delay in (0.0, 0.3, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0)
    ],
)
def test_ctrl_c_while_it_compares_ends_cleanly(tmp_path, delay):
    with Running("--rule", "0", "--length", "12", "--out", str(tmp_path)) as running:
        _, view = call(running, "new")
        _, view = call(running, "flip", game=view["game"], cell=0)

        def compare():
            with suppress(ConnectionError):
                status, answer = call(running, "compare", game=view["game"])
                assert status == 200 or "ended" in answer["error"]

        thread = threading.Thread(target=compare)
        thread.start()
        time.sleep(delay)
        begun = time.monotonic()
        assert running.interrupt(times=2) == (0, "", "stopped\n")
        assert time.monotonic() - begun < 20
        thread.join(60)


@pytest.mark.parametrize(
    ("argv", "complaint"),
    [
        (["--rule", "300"], "0 to 255"),
        (["--length", "64"], "from 3 to 32"),
        (["--split", "nope"], "nope"),
        (["--out", "nowhere"], "no such directory"),
        (["--results", "nowhere"], "no results directory"),
        (["--port", "99999"], "0 to 65535"),
    ],
)
def test_what_cannot_be_is_one_clear_line(capsys, argv, complaint):
    code, out, err = tape(capsys, "play", *argv)
    assert (code, out) == (2, "")
    assert complaint in err
    assert err.count("\n") == 1


# Without a server


def test_a_static_game_is_one_file_that_loads_nothing(capsys, tmp_path):
    code, out, _ = tape(capsys, "play", "--static", str(tmp_path / "game"))
    page = tmp_path / "game" / "index.html"
    assert (code, out) == (0, f"wrote {page}\n")
    text = page.read_text()
    links = re.findall(r'(?:src|href)="([^"]*)"', text)
    assert links == ["data:,"]
    assert "://" not in text
    assert len(text) < 100_000


def test_boards_can_be_solved_from_every_tape_and_so_can_most_rules_of_the_day():
    worlds = local_worlds()
    shape = tuple(worlds["life"]["shape"])
    assert shape == (5, 5)
    universe = splits.load(LIFE).universe
    assert set(worlds["life"]["rules"]) <= set(universe.rules)
    assert worlds["life"]["horizon"] > universe.horizon
    assert len(worlds["day"]["rules"]) > 50
    assert all(
        exact.shipped_ceilings(16, 16)[rule].solvable > 0.9 for rule in worlds["day"]["rules"]
    )
    assert len(set(worlds["day"]["tapes"])) == len(worlds["day"]["tapes"])


def test_naming_a_rule_answers_once_and_counts_as_seeing_it(table):
    for guess, is_right in ((204, True), (7, False)):
        view = begin_hidden(table, 204)
        answer = ask_table(table, "name", view, rule=guess)
        assert (answer["rule"], answer["is_right"]) == (204, is_right)
        assert answer["view"]["shown"] == ["name"]
        assert ask_table(table, "flip", view, cell=0)["rule"] == 204
    view = begin_hidden(table, 204)
    for wrong in (256, None, "204"):
        with pytest.raises(ValueError, match="0 to 255"):
            ask_table(table, "name", view, rule=wrong)
    assert ask_table(table, "flip", view, cell=0)["shown"] == []
