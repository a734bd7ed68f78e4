"""The tape as a game: on the exam's own tapes, with hints, comparisons, and a result that counts.

Games live in this process and are stepped here, so that a hidden rule is hidden from the page as
well; `game` says what counts as seeing it, `server` shows the page, and `worker` does what takes
long.
"""

from tapebench.play.game import (
    Game,
    Hint,
    World,
    compare,
    flip,
    hint,
    play_baselines,
    save,
    start,
)
from tapebench.play.server import MAX_BODY, Session, address, make_server

__all__ = [
    "MAX_BODY",
    "Game",
    "Hint",
    "Session",
    "World",
    "address",
    "compare",
    "flip",
    "hint",
    "make_server",
    "play_baselines",
    "save",
    "start",
]
