"""The pages in a real browser: Debian's Chromium, driven by Playwright. `make browser` gets it."""

import re
import secrets
import threading

import numpy as np
import pytest

import submissions
from browsers import PHONE, WIDE, scrolls_sideways
from stored_runs import EXAM, sit, store_bundle, store_runs
from tapebench import play, report
from tapebench.exam import bounds, bundle, regret
from tapebench.exam.exam import make_exam
from tapebench.physics import exact, families, space
from tapebench.physics.families import elementary
from tapebench.physics.space import Space
from tapebench.runs import board
from tapebench.tasks import splits

pytestmark = pytest.mark.slow  # nearly all of them start processes


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """A report on three agents, with episodes of one."""
    root = store_runs(tmp_path_factory.mktemp("runs"))
    store_bundle(root / "first.tape")
    return report.write(report.make(root), root / "report").as_uri()


# The report


@pytest.mark.parametrize(
    ("viewport", "scheme"), [(WIDE, "light"), (WIDE, "dark"), (PHONE, "light")]
)
def test_the_report_opens_from_disk_on_any_screen(visit, address, viewport, scheme):
    page = visit(address, viewport, scheme)
    assert page.title() == "TAPE report"
    assert page.locator("figure svg").count() >= 7
    page.click(".explorer [data-rule='30']")
    page.wait_for_selector(".player .status:not(:empty)")
    assert not scrolls_sideways(page)
    ink, paper = (
        page.evaluate(f"getComputedStyle(document.body).{name}")
        for name in ("color", "backgroundColor")
    )
    bright = [sum(map(int, re.findall(r"\d+", colour)[:3])) for colour in (ink, paper)]
    assert (bright[0] > bright[1]) == (scheme == "dark")
    drawn = page.evaluate("getComputedStyle(document.querySelector('figure svg text')).fill")
    assert drawn == ink


def test_a_table_sorts_by_the_column_that_is_pressed(visit, address):
    page = visit(address)
    table = page.locator("table[data-name='main-fps30-main']")
    head = table.locator("th", has_text="OOD success")

    def values():
        cells = table.locator("tbody tr td:nth-of-type(2)").all()
        return [float(cell.get_attribute("data-value")) for cell in cells]

    head.locator("button").focus()
    page.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "descending"
    assert values() == sorted(values(), reverse=True)
    page.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "ascending"
    assert values() == sorted(values())
    table.locator("th button", has_text="agent").click()
    names = table.locator("tbody th").all_inner_texts()
    assert names == sorted(names)
    assert head.get_attribute("aria-sort") is None


def test_what_is_missing_comes_last_however_a_column_is_sorted(visit, address):
    page = visit(address)
    table = page.locator("table[data-name='main-fps30-main']")
    for _ in range(2):
        table.locator("th button", has_text="OOD return").click()
        assert table.locator("tbody tr").last.locator("th").inner_text() == "exact ceiling"


def test_a_rule_is_looked_at_with_the_keyboard(visit, address):
    page = visit(address)
    page.focus(".explorer [data-rule='0']")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    assert page.locator(".detail h4").inner_text() == "Rule 30"
    detail = page.locator(".detail").inner_text()
    assert "chaotic" in detail
    assert "Exact ceiling: 1.000" in detail
    shown = page.locator(".detail table.bars tr", has_text="first-one").inner_text()
    row = list(EXAM.rules).index(30)
    success = np.mean(
        [sit("first-one", 100 * s + n).success[row] for s in range(3) for n in (2, 3)]
    )
    assert f"{success:.3f}" in shown
    counts = exact.reach(30, 8, 8).histogram
    assert page.locator(".columns span").count() == len(counts)


def test_an_episode_is_played_back_step_by_step(visit, address):
    page = visit(address)
    page.click(".explorer [data-rule='110']")
    page.select_option(".detail .choice:nth-of-type(1) select", "first-one (declared blind)")
    page.select_option(".detail .choice:nth-of-type(2) select", index=2)
    episodes, row = sit("first-one", 0), list(EXAM.rules).index(110)
    tapes, cells = episodes.trace(row, 2)
    steps = exact.steps_to_goal(110, 8, 8)
    judged = regret.regrets(episodes, EXAM, bounds.ideal(EXAM))
    page.focus(".player")
    status, verdict = page.locator(".player .status"), page.locator(".player .verdict dd")

    def marked(kind):
        return page.evaluate(
            "(kind) => [...document.querySelectorAll('.player .strip > *')]"
            ".flatMap((part, cell) => (part.classList.contains(kind) ? [cell] : []))",
            kind,
        )

    for step, cell in enumerate(cells):
        said = status.inner_text()
        assert f"step {step} of 8 · distance {tapes[step].mean():.3f} · flips cell {cell}" in said
        known, unknown, lost = verdict.all_inner_texts()
        tape = space.to_int(space.pack(tapes[step]))
        ahead = [int(steps[elementary.step(tape, flipped, 110, 8)]) for flipped in range(8)]
        if steps[tape] <= 8 - step:
            assert f"the goal in {steps[tape]} step" in known
            assert marked("known") == [
                place for place, more in enumerate(ahead) if more == min(ahead)
            ]
        else:
            assert known == "no way to the goal in time"
        best = [place for place in range(8) if judged.best[row, 2, step] >> place & 1]
        if value := judged.value[row, 2, step]:
            assert f"success {value:.3f} expected" in unknown
            assert marked("unknown") == best
        else:
            assert "no rule that is still possible" in unknown
        assert lost.startswith(f"{judged.total[row, 2, step]:.3f}")
        kind = "evidence ignored" if judged.ignored[row, 2, step] else "control"
        assert (kind in lost) == bool(judged.total[row, 2, step])
        assert marked("one") == np.flatnonzero(tapes[step]).tolist()
        page.keyboard.press("ArrowRight")
    assert ("goal reached" in status.inner_text()) == bool(episodes.success[row, 2])
    page.keyboard.press("Home")
    assert "step 0 of 8" in status.inner_text()
    page.select_option(".detail .choice:nth-of-type(1) select", "a shortest way")
    page.focus(".player")
    page.keyboard.press("End")
    fewest = EXAM.optimal_steps()[row, 2]
    assert f"step {max(fewest, 0)} of 8" in status.inner_text()


@pytest.mark.parametrize("length", [16, 32])
def test_what_is_not_computed_of_the_best_moves_is_said(visit, tmp_path, length):
    exam = make_exam(length=length, horizon=length, episodes=1, rules=[30, 110, 204])
    store_runs(tmp_path, seeds=1, agents=("first-one",), exam=exam)
    store_bundle(tmp_path / "first.tape", exam=exam)
    page = visit(report.write(report.make(tmp_path), tmp_path / "report").as_uri())
    page.click(".explorer [data-rule='30']")
    page.wait_for_selector(".player .status:not(:empty)")
    verdict = page.locator(".player .verdict dd")
    known, unknown, lost = verdict.all_inner_texts()
    assert f"the goal in {exam.optimal_steps()[0, 0]} steps" in known
    assert unknown == lost == "– more than 12 cells"
    page.focus(".player")
    page.keyboard.press("ArrowRight")
    known = verdict.first.inner_text()
    assert ("on no stored way" in known) == (length == 32)


def test_the_script_has_the_physics_and_the_exact_answers_right(visit, address):
    page = visit(address)
    tape = "0110100111010010"
    number = int(tape[::-1], 2)
    evolved = page.evaluate(
        "(text) => Array.from({length: 256}, (_, rule) => packTape(evolve(parseTape(text), rule)))",
        tape,
    )
    assert evolved == [elementary.evolve(number, rule, 16) for rule in range(256)]
    for rule in (30, 45, 90, 110, 204, 255):
        solved = page.evaluate("(rule) => Array.from(solve(rule, Array(9).fill(0), 7))", rule)
        steps = exact.steps_to_goal(rule, 9, 7)
        assert solved == np.where(steps == exact.UNREACHED, 255, steps).tolist()
    for name, shape, rules in (("ring2", (16,), (0, 7, 2283010756)), ("life", (4, 4), (224, 8))):
        family, size = families.get(name), Space(shape)
        for rule in rules:
            world = [tape, rule, {"family": name, "shape": list(shape)}]
            after = page.evaluate("([t, r, w]) => packTape(evolve(parseTape(t), r, w))", world)
            assert after == family.evolve(number, rule, size)
            solved = page.evaluate(
                "([t, r, w]) => Array.from(solve(r, Array(t.length).fill(0), 5, w))", world
            )
            steps = exact.steps_to_goal(rule, size, 5, 0, family)
            assert solved == np.where(steps == exact.UNREACHED, 255, steps).tolist()


def test_a_torus_is_a_board_and_its_history_a_strip_of_boards(visit, tmp_path):
    split = splits.load("life-H6-matched")
    rules = [*split.train[:2], *split.test[:2]]
    shape = {"family": "life", "shape": (5, 5), "horizon": 6}
    exam = make_exam(split=split, episodes=2, rules=rules, **shape)
    store_runs(tmp_path, seeds=1, agents=("first-one",), exam=exam)
    store_bundle(tmp_path / "first.tape", exam=exam)
    page = visit(report.write(report.make(tmp_path), tmp_path / "report").as_uri(), PHONE)
    label = exam.universe.family.label(rules[0])
    page.click(f".explorer .rules button:text-is('{label}')")
    page.wait_for_selector(".player .status:not(:empty)")
    assert not scrolls_sideways(page)
    board = page.locator(".player .strip > *")
    boxes = [board.nth(cell).bounding_box() for cell in (0, 4, 5)]
    assert boxes[0]["y"] == boxes[1]["y"] < boxes[2]["y"]
    assert boxes[0]["x"] == boxes[2]["x"]
    history = page.locator(".player canvas").bounding_box()
    assert history["width"] > 5 * history["height"]  # seven boards beside each other
    page.select_option(".detail .choice:nth-of-type(1) select", "a shortest way")
    fewest = exam.optimal_steps()[exam.rules.tolist().index(rules[0]), 0]
    assert f"the goal in {fewest} step" in page.locator(".player .verdict dd").first.inner_text()
    page.focus(".player")
    page.keyboard.press("End")
    assert "goal reached" in page.locator(".player .status").inner_text()


# The game


class Gate:
    """Holds back calls of the page by their name, or what they come to, until they may pass."""

    def __init__(self, answer):
        self.answer, self.closed, self.late, self.calls = answer, {}, set(), []

    def close(self, name, late=False):
        self.closed[name] = threading.Event()
        self.late |= {name} if late else set()

    def open(self, name):
        self.closed.pop(name).set()

    def __call__(self, name, request):
        self.calls.append((name, request.get("cell")))
        event = self.closed.get(name)
        if event is None:
            return self.answer(name, request)
        if name in self.late:
            answer = self.answer(name, request)
            assert event.wait(60)
            return answer
        assert event.wait(60)
        return self.answer(name, request)


@pytest.fixture
def game(tmp_path, visit, monkeypatch):
    """Opens the page of a server with the identity as its law: every one is to be flipped once.

    A law that is drawn is rule 54.
    """
    monkeypatch.setattr(secrets, "randbelow", lambda end: 54)
    table = play.Session("fps30", 12, None, 204, tmp_path)
    gate = table.answer = Gate(table.answer)
    server = play.make_server(table)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    address = play.address(server)

    def open_page(*options):
        page = visit(address, *options, own=[address.split("?")[0]])
        page.wait_for_selector(".strip button")
        return page, gate

    yield open_page
    for event in gate.closed.values():
        event.set()
    server.shutdown()
    server.server_close()
    thread.join(10)


def await_status(page, text):
    page.wait_for_function(
        "(text) => document.getElementById('status').textContent.includes(text)", arg=text
    )
    return page.inner_text("#status")


def hide_the_law(page):
    page.fill("#rule", "")
    page.keyboard.press("Tab")
    await_status(page, "rule hidden")


def play_out(page):
    """Flip the first cell until the game is over."""
    for left in range(11, -1, -1):
        if "left" not in page.inner_text("#status"):
            break
        page.locator(".strip button").first.click()
        page.wait_for_function(
            "(left) => !document.getElementById('status').textContent.startsWith(left)",
            arg=f"{left + 1} moves",
        )


def test_a_game_is_played_to_the_goal_and_saved(game, tmp_path):
    page, _ = game()
    ones = page.locator(".strip button.one").count()
    assert ones == int(space.hamming(play.start("fps30", 12, rule=204).tapes[0], 0))
    for left in range(ones, 0, -1):
        page.wait_for_function(
            "(left) => document.querySelectorAll('.strip button.one').length === left", arg=left
        )
        assert f"({left} of 12)" in page.inner_text("#status")
        page.locator(".strip button.one").first.click()
    assert f"Solved in {ones} moves" in await_status(page, "Solved")
    page.click("#save")
    page.wait_for_selector("#result p")
    saved = list(tmp_path.glob("*.tape"))
    assert len(saved) == 1
    replayed = bundle.verify(saved[0])
    assert replayed.episodes.success.all()
    assert replayed.about["sees_rule"]


def test_a_game_is_played_by_keys_with_the_best_moves(game):
    page, _ = game(PHONE, "dark")
    assert not scrolls_sideways(page)
    while "Solved" not in page.inner_text("#status"):
        page.keyboard.press("h")
        page.wait_for_selector(".strip button.best")
        best = page.evaluate(
            "[...document.querySelectorAll('.strip button')].findIndex("
            "(part) => part.classList.contains('best'))"
        )
        page.locator(".strip button").nth(best).focus()
        page.keyboard.press("Enter")
        page.wait_for_function("() => !document.querySelector('.strip button.best')")
    page.keyboard.press("n")
    await_status(page, "tape 2")


def test_a_game_that_is_over_is_compared_and_another_law_is_taken(game):
    page, _ = game()
    page.fill("#rule", "0")
    page.keyboard.press("Tab")
    await_status(page, "rule shown: 0")
    page.locator(".strip button").first.click()
    await_status(page, "Solved in 1")
    page.click("#compare")
    page.wait_for_selector("#result table")
    text = page.inner_text("#result")
    assert "Tape 1: rule 0, stable" in text
    assert "1 move is enough" in text
    for player in ("you", "random", "flip-ones", "greedy"):
        assert player in text


def test_a_law_that_was_shown_is_never_called_hidden_again(game, tmp_path):
    page, _ = game()
    hide_the_law(page)
    play_out(page)
    assert "rule hidden" in page.inner_text("#status")
    page.click("#compare")
    page.wait_for_selector("#result table")
    assert "Tape 1: rule 54, chaotic" in page.inner_text("#result")
    assert page.inner_text("#status").endswith("rule shown: 54")
    page.click("#next")
    assert await_status(page, "tape 2").endswith("rule shown: 54")
    play_out(page)
    page.click("#save")
    page.wait_for_selector("#result p")
    about = bundle.verify(next(tmp_path.glob("*.tape"))).about
    assert (about["sees_rule"], about["shown"]) == (True, ["compare"])


def test_saving_and_best_moves_show_a_hidden_law_without_its_number(game):
    page, _ = game()
    hide_the_law(page)
    play_out(page)
    page.click("#save")
    page.wait_for_selector("#result p")
    assert "counts as shown" in page.inner_text("#result")
    assert page.inner_text("#status").endswith("rule shown by the saved file")
    for said in ("#status", "#result"):  # the notebook may: it is what the player has seen
        assert "54" not in page.inner_text(said)
    page.click("#new")
    await_status(page, "rule hidden")
    page.click("#hint")
    assert "rule shown by a best move" in await_status(page, "rule shown")


def test_what_is_clicked_while_it_thinks_is_done_in_order(game):
    page, gate = game()
    gate.close("flip")
    page.evaluate(
        "[7, 2, 2, 9].forEach((cell) => document.querySelectorAll('.strip button')[cell].click())"
    )
    page.wait_for_function("() => document.getElementById('thinking').textContent")
    page.keyboard.press("h")
    gate.open("flip")
    page.wait_for_selector(".strip button.best")
    assert page.inner_text("#status").startswith("8 moves left")
    assert gate.calls[1:] == [("flip", 7), ("flip", 2), ("flip", 2), ("flip", 9), ("hint", None)]
    page.wait_for_function("() => !document.getElementById('thinking').textContent")


def test_the_next_tape_is_played_while_it_compares(game):
    page, gate = game()
    hide_the_law(page)
    play_out(page)
    gate.close("compare")
    page.click("#compare")
    page.wait_for_function("() => document.getElementById('thinking').textContent")
    assert page.inner_text("#thinking") == "comparing …"
    assert page.is_disabled("#compare")
    page.keyboard.press("n")
    assert "rule hidden" in await_status(page, "tape 2")
    page.locator(".strip button").nth(4).click()
    await_status(page, "11 moves left")
    gate.close("flip", late=True)
    page.locator(".strip button").nth(5).click()
    page.wait_for_timeout(300)
    gate.open("compare")
    page.wait_for_selector("#result table")
    assert "Tape 1: rule" in page.inner_text("#result")
    assert "rule shown:" in page.inner_text("#status")
    gate.open("flip")
    assert "rule shown:" in await_status(page, "10 moves left")
    assert page.inner_text("#thinking") == ""


def test_a_comparison_that_comes_after_another_game_was_begun_is_not_shown(game):
    page, gate = game()
    play_out(page)
    gate.close("compare")
    page.click("#compare")
    page.wait_for_function("() => document.getElementById('thinking').textContent")
    hide_the_law(page)
    gate.open("compare")
    page.wait_for_function("() => !document.getElementById('thinking').textContent")
    assert page.inner_text("#result") == ""
    assert "rule hidden" in page.inner_text("#status")


def test_no_move_is_made_on_a_tape_that_was_not_on_the_screen(game):
    page, gate = game()
    gate.close("new")
    page.evaluate(
        "document.getElementById('new').click();"
        "document.querySelectorAll('.strip button')[3].click()"
    )
    page.wait_for_selector(".strip button:disabled")
    gate.open("new")
    page.wait_for_selector(".strip button:enabled")
    page.locator(".strip button").nth(6).click()
    await_status(page, "11 moves left")
    assert [call for call in gate.calls if call[0] == "flip"] == [("flip", 6)]


@pytest.fixture(scope="module")
def leaderboard(tmp_path_factory):
    """A board with two rows, one of a hostile name, and a refused file."""
    root = tmp_path_factory.mktemp("board")
    submissions.submit(root, "constructor")
    submissions.submit(root / "b", "<b>bold</b>", seed=2)
    (root / "nothing.tape").write_bytes(b"x")
    return report.write_board(board.read(root), root / "board").as_uri()


@pytest.mark.parametrize("viewport", [WIDE, PHONE])
def test_the_name_of_a_row_leads_to_its_episodes(visit, leaderboard, viewport):
    page = visit(leaderboard, viewport, scheme="dark")
    assert page.locator("#refused li").count() == 1
    for name in ("<b>bold</b>", "constructor"):
        page.get_by_role("link", name=name, exact=True).click()
        who = page.get_by_label("Episode of")
        assert who.input_value() == name
        page.wait_for_function("document.querySelector('.player .status').textContent")
        assert who.is_visible()
    page.get_by_role("button", name=re.compile("^rule 30,")).click()
    assert page.get_by_label("Episode of").input_value() == "constructor", "the player stays"
    page.get_by_role("button", name="unseen", exact=True).click()
    heads = page.locator("tbody th[scope=row]").all_text_contents()
    assert set(heads) >= {"constructor", "<b>bold</b>", "exact ceiling"}


# The games of the page itself


@pytest.fixture(scope="module")
def static_page(tmp_path_factory):
    return play.write_static(tmp_path_factory.mktemp("static")).as_uri()


def choose(page, kind):
    page.locator(".choices select").first.select_option(kind)
    page.wait_for_function(
        "(count) => document.querySelectorAll('.entry').length === count",
        arg={"life": 18}.get(kind, 8),
    )


def follow_hints(page):
    """Play the best moves; how many it took."""
    moves = 0
    while page.locator(".status.won").count() == 0:
        page.keyboard.press("h")
        page.locator(".strip button.best").click()
        page.wait_for_selector(".strip:not(:has(.best))")
        moves += 1
    return moves


@pytest.mark.parametrize(("viewport", "scheme"), [(WIDE, "light"), (PHONE, "dark")])
@pytest.mark.parametrize("kind", ["day", "free", "life"])
def test_a_page_without_a_server_is_played_to_the_goal_at_par(
    visit, static_page, kind, viewport, scheme
):
    page = visit(static_page, viewport, scheme)
    page.wait_for_selector(".strip button")
    choose(page, kind)
    par = int(re.search(r"par (\d+)", page.inner_text("#status"))[1])
    assert follow_hints(page) == par
    assert not scrolls_sideways(page)
    assert not page.locator("#save").is_visible()
    assert page.locator("#rule").is_visible() == (kind == "free")
    assert (f"moves, par {par}" in page.inner_text("#result")) == (kind == "day")


@pytest.mark.parametrize("family", ["elementary", "life"])
def test_the_page_steps_rings_and_boards_as_the_package_does(visit, static_page, family):
    page = visit(static_page)
    shape = (11,) if family == "elementary" else (4, 5)
    world, law = Space(shape), families.get(family)
    rng = np.random.default_rng(5)
    for rule in rng.integers(0, law.num_rules, 20).tolist():
        tape, cell = int(rng.integers(1 << world.size)), int(rng.integers(world.size))
        cells = [tape >> place & 1 for place in range(world.size)]
        expected = law.step(tape, cell, rule, world)
        named = {"family": family, "shape": shape}
        stepped = page.evaluate(
            "([world, cells, cell, rule]) => step(world, cells, cell, rule)",
            [named, cells, cell, rule],
        )
        assert stepped == [expected >> place & 1 for place in range(world.size)]
        assert page.evaluate("([f, r]) => ruleLabel(f, r)", [family, rule]).endswith(
            law.label(rule)
        )


def test_par_on_a_board_is_the_fewest_steps_there_are(visit, static_page):
    page = visit(static_page)
    law, board = families.get("life"), Space((3, 4))
    for text in ("B3/S23", "B1/S12", "B2/S"):
        rule = law.parse(text)
        steps = exact.steps_to_goal(rule, board, 4, family=law)
        for tape in range(1, 1 << board.size, 397):
            cells = [tape >> place & 1 for place in range(board.size)]
            way = page.evaluate(
                "([cells, rule]) => findWay({family: 'life', shape: [3, 4]}, cells, rule, 4)",
                [cells, rule],
            )
            assert (None if way is None else len(way)) == (
                int(steps[tape]) if steps[tape] <= 4 else None
            )


def test_the_game_of_a_day_is_the_same_for_everybody_and_another_tomorrow(visit, static_page):
    first, second = visit(static_page), visit(static_page)
    of_day = "(day) => JSON.stringify(gameOfDay(day, settingsOfTest.day))"
    games = []
    for page in (first, second):
        page.evaluate(
            "window.settingsOfTest = JSON.parse(document.getElementById('data').textContent)"
        )
        games.append([page.evaluate(of_day, day) for day in range(20000, 20020)])
    assert games[0] == games[1]
    assert len(set(games[0])) == 20


def test_the_notebook_fills_in_with_what_was_seen_and_names_the_rule(visit, static_page):
    page = visit(static_page)
    choose(page, "free")
    page.wait_for_selector("text=Notebook: 0 of 8")
    entry = page.locator(".entry").first
    entry.click()
    assert entry.inner_text().strip() == "1"
    page.locator(".strip button").nth(2).click()
    page.wait_for_selector(".entry.seen")
    seen = page.locator(".entry.seen").count()
    assert f"{seen} of 8" in page.inner_text(".notebook h2")
    while page.locator(".entry:not(.seen):not(.guessed)").count():
        page.locator(".entry:not(.seen):not(.guessed)").first.click()
    guess = page.inner_text("#name").removeprefix("Name it: ")
    page.click("#name")
    page.wait_for_selector("#result p")
    told = page.inner_text("#result")
    assert guess in told
    assert "rule shown: " in page.inner_text("#status")
    assert page.locator("#name").is_disabled()


def test_a_rule_that_is_named_on_the_exams_tapes_counts_as_shown(game, tmp_path):
    page, _ = game()
    hide_the_law(page)
    while page.locator(".entry:not(.seen):not(.guessed)").count():
        page.locator(".entry:not(.seen):not(.guessed)").first.click()
    page.click("#name")
    await_status(page, "rule shown: 54")
    assert page.inner_text("#result") == "It is rule 54, not rule 255."
    play_out(page)
    page.click("#save")
    page.wait_for_selector("#result p:has-text('Saved')")
    (saved,) = tmp_path.glob("*.tape")
    assert bundle.verify(saved).about["shown"] == ["name"]
    assert "rule054" in saved.name


def test_a_board_is_played_on_the_page_of_a_server_without_asking_it(game):
    page, gate = game()
    choose(page, "life")
    assert page.locator(".strip button").count() == 25
    assert page.locator("canvas").is_visible()  # the boards so far
    page.locator(".strip button").nth(7).focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    await_status(page, "7 moves left")
    assert not page.locator("#save").is_visible()
    choose(page, "exam")
    await_status(page, "rule shown: 204")
    assert [name for name, _ in gate.calls] == ["new", "new"]
