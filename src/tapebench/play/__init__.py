"""The tape as a game: on the exam's own tapes, with hints, comparisons, and a result that counts.

Games live in this process and are stepped here, so that a hidden rule is hidden from the page as
well; `game` says what counts as seeing it, `server` shows the page, and `worker` does what takes
long.
"""

from tapebench.play.game import (
    Game,
    Hint,
    RuleGames,
    compare_with_others,
    hint,
    play_baselines,
    save_games,
    start,
    step_game,
)
from tapebench.play.page import write_static
from tapebench.play.server import MAX_BODY, Session, address, make_server

__all__ = [
    "MAX_BODY",
    "Game",
    "Hint",
    "RuleGames",
    "Session",
    "address",
    "compare_with_others",
    "hint",
    "make_server",
    "play_baselines",
    "save_games",
    "start",
    "step_game",
    "write_static",
]
