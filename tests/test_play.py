"""The game: what a move does, what help is worth, results that verify, a careful server."""

import http.client
import json
import signal
import subprocess
import sys
import threading
from dataclasses import replace

import pytest

from stored_runs import EXAM, sit, store_bundle
from tapebench import bundle, dynamics, exact, play
from tapebench.exam import make_exam
from test_cli import tape


def ones(game):
    return [cell for cell in range(game.length) if game.tapes[-1] >> cell & 1]


def solve_204(game):
    """Under the identity every one has to be flipped once."""
    while not game.is_over:
        game = play.flip(game, ones(game)[0])
    return game


# Games


def test_a_game_is_an_episode_of_the_exam():
    game = play.start("fps30", 8, rule=30, episode=2)
    exam = make_exam(rules=[30], length=8, horizon=8, episodes=3)
    assert game.tapes == [dynamics.to_int(exam.tapes()[2])]
    after = play.flip(play.flip(game, 3), 7)
    assert after.tapes[1] == dynamics.step(game.tapes[0], 3, 30, 8)
    assert after.cells == (3, 7)
    assert not game.cells


def test_the_identity_is_won_in_as_many_moves_as_there_are_ones():
    game = play.start("fps30", 8, rule=204)
    won = solve_204(game)
    assert won.is_won
    assert len(won.cells) == len(ones(game))
    with pytest.raises(ValueError, match="over"):
        play.flip(won, 0)


def test_a_game_is_over_at_the_horizon():
    game = play.start("fps30", 8, horizon=3, rule=255)
    for _ in range(3):
        assert not game.is_over
        game = play.flip(game, 0)
    assert game.is_over
    assert not game.is_won


def test_a_hidden_rule_allows_its_tape_to_be_solved():
    for _ in range(5):
        game = play.start("fps30", 6)
        assert game.is_hidden
        assert exact.steps_to_goal(game.rule, 6, 6)[game.tapes[0]] <= 6


@pytest.mark.parametrize("rule", [30, 108, 204])
def test_following_hints_is_a_shortest_way(rule):
    game = play.start("fps30", 10, rule=rule)
    fewest = int(exact.steps_to_goal(rule, 10, 10)[game.tapes[0]])
    while not game.is_over:
        found = play.hint(game)
        assert found.is_proved
        assert found.steps == fewest - len(game.cells)
        game = play.flip(game, found.cell)
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
        found = play.hint(game)
        assert found.is_proved
        assert found.steps == fewest - len(game.cells)
        game = play.flip(game, found.cell)
    assert game.is_won


def test_longer_tapes_are_searched_and_the_way_is_a_way():
    game = play.start("fps30", 20, rule=204)
    found = play.hint(game)
    assert not found.is_proved
    assert game.tapes[0] >> found.cell & 1


def test_others_on_the_same_tape_are_compared_with(tmp_path):
    store_bundle(tmp_path / "a.tape")
    known = [bundle.verify(tmp_path / "a.tape")]
    game = solve_204(play.start("fps30", 8, rule=204))
    found = play.compare(game, known)
    rows = {row["who"]: row for row in found["rows"]}
    assert set(rows) == {"you", "random", "flip-ones", "greedy", "first-one"}
    agent = sit("first-one", 0)
    at = list(EXAM.rules).index(204), 0
    assert rows["first-one"]["steps"] == agent.steps[at]
    assert rows["you"]["success"]
    assert found["fewest"] == len(game.cells)
    with pytest.raises(ValueError, match="reveals its rule"):
        play.compare(play.start("fps30", 8, rule=204))


# Results


def test_a_saved_result_verifies_and_says_what_was_seen(tmp_path, capsys):
    hidden = play.Game(204, True, "fps30", 8, 8)
    games = [solve_204(hidden), solve_204(replace(hidden, episode=1))]
    path = play.save(games, tmp_path)
    code, out, _ = tape(capsys, "verify", str(path), "--json")
    document = json.loads(out)
    assert code == 0
    assert document["policy"] == "human"
    assert document["episodes"] == 2
    assert not document["sees_rule"]
    for seen in (replace(games[0], is_hidden=False), replace(games[0], was_helped=True)):
        again = bundle.verify(play.save([seen], tmp_path))
        assert again.about["sees_rule"]
        assert again.episodes.success.all()
    assert len(list(tmp_path.glob("*.tape"))) == 3


def test_what_is_not_finished_is_not_saved(tmp_path):
    begun = play.flip(play.start("fps30", 8, rule=30), 0)
    second = solve_204(play.start("fps30", 8, rule=204, episode=1))
    for games in ([begun], [second], []):
        with pytest.raises(ValueError, match="before saving"):
            play.save(games, tmp_path)
    assert not list(tmp_path.iterdir())


# The server


@pytest.fixture
def server(tmp_path):
    table = play.Table("fps30", 8, None, None, tmp_path)
    made = play.make_server(table)
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    yield made
    made.shutdown()
    made.server_close()
    thread.join(10)
    assert not thread.is_alive()


def ask(server, method, path, body=None, **headers):
    port = server.server_address[1]
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    given = {"Content-Type": "application/json", **headers}
    data = body if body is None or isinstance(body, bytes) else json.dumps(body)
    connection.request(method, path, data, given)
    answer = connection.getresponse()
    return answer.status, answer.read()


def call(server, name, **asked):
    status, body = ask(server, "POST", f"/api/{name}", asked)
    return status, json.loads(body)


def test_a_game_is_played_through_the_server_and_its_rule_stays_hidden(server, tmp_path):
    assert server.server_address[0] == "127.0.0.1"
    _, view = call(server, "new", rule=None, length=8)
    assert view["rule"] is None
    status, page = ask(server, "GET", "/")
    assert status == 200
    assert b"play.js" not in page
    assert "rule" not in {key for key, value in view.items() if value is not None}
    _, view = call(server, "new", rule=204, length=8)
    while not view["is_over"]:
        _, view = call(server, "flip", game=view["game"], cell=view["tapes"][-1].index("1"))
    assert view["is_won"]
    _, following = call(server, "next", game=view["game"])
    assert following["episode"] == 1
    assert following["tapes"] != view["tapes"][:1]
    _, saved = call(server, "save", game=view["game"])
    assert bundle.verify(tmp_path / saved["saved"]).episodes.success.all()


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
    status, body = ask(server, method, path, None if method == "GET" else {})
    assert status == 404
    assert b"root:" not in body


@pytest.mark.parametrize(
    "headers",
    [{"Host": "evil.example"}, {"Host": "127.0.0.1"}, {"Origin": "http://evil.example"}],
)
def test_requests_of_other_sites_are_refused(server, headers):
    for method, path in (("GET", "/"), ("POST", "/api/new")):
        status, body = ask(server, method, path, None if method == "GET" else {}, **headers)
        assert status == 403
        assert b"<html" not in body


def test_bad_calls_are_answered_in_one_line(server):
    for body in (b"junk", b"[1]", b"", b"[" * 5000):
        assert ask(server, "POST", "/api/new", body)[0] == 400
    assert ask(server, "POST", "/api/new", {}, **{"Content-Type": "text/plain"})[0] == 400
    assert ask(server, "POST", "/api/new", b"x" * (play.MAX_BODY + 1))[0] == 413
    assert ask(server, "PUT", "/", {})[0] == 501
    for name, asked, said in (
        ("new", {"rule": 256, "length": 8}, "0 to 255"),
        ("new", {"rule": "30", "length": 8}, "integer"),
        ("new", {"rule": 30, "length": 10**9}, "from 3 to 32"),
        ("new", {"rule": 30, "length": 8.5}, "whole number"),
        ("flip", {"game": "none", "cell": 0}, "no such game"),
    ):
        status, answer = call(server, name, **asked)
        assert status == 400
        assert said in answer["error"]
    _, view = call(server, "new", rule=30, length=8)
    for cell in (-1, 8, None, "0", True, 1.0):
        assert call(server, "flip", game=view["game"], cell=cell)[0] == 400
    assert call(server, "flip", game=view["game"], cell=0)[0] == 200


def test_old_games_are_forgotten(monkeypatch, tmp_path):
    monkeypatch.setattr(play, "MAX_GAMES", 3)
    table = play.Table("fps30", 8, None, 30, tmp_path)
    views = [table.answer("new", {}) for _ in range(5)]
    assert len(table.games) == 3
    assert views[-1]["game"] in table.games
    assert views[0]["game"] not in table.games


# The command


def test_the_command_says_where_it_is_and_ends_cleanly_on_ctrl_c(tmp_path):
    command = [sys.executable, "-c", "from tapebench.cli import main; main()", "play"]
    options = ["--rule", "204", "--length", "8", "--out", str(tmp_path)]
    with subprocess.Popen(
        [*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        try:
            line = running.stdout.readline()
            assert line.startswith("play at http://127.0.0.1:"), running.stderr.read()
            running.send_signal(signal.SIGINT)
            out, err = running.communicate(timeout=60)
        finally:
            running.kill()
    assert running.returncode == 0
    assert out == ""
    assert err == "stopped\n"


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
