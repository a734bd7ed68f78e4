"""Agents as users write them, good and bad, for `tape evaluate agents_of_users:...`."""

import os
import signal
import threading
import time

import numpy as np


class FlipFirstOne:
    """Flips the first one it sees; remembers how many steps it has taken."""

    def reset(self, num_envs):
        self.steps = np.zeros(num_envs, int)

    def act(self, obs):
        self.steps += 1
        return obs[:, :-1].argmax(axis=1)


class Believer(FlipFirstOne):
    def belief(self):
        return np.full((len(self.steps), 256), 1 / 256)


class Deaf(FlipFirstOne):
    """Is stopped soon after its episodes begin, as by a debugger, and reads nothing from then."""

    def reset(self, num_envs):
        super().reset(num_envs)
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGSTOP)).start()


class Broken(FlipFirstOne):
    """Behaves for a while, then does what it was made for."""

    def __init__(self, fault, after=15):
        self.fault, self.left = fault, after

    def act(self, obs):
        self.left -= 1
        actions = super().act(obs)
        return actions if self.left > 0 else self.fault(obs, actions)


def crash(obs, actions):
    raise RuntimeError("out of ideas")


def vanish(obs, actions):
    os._exit(3)


def hang(obs, actions):
    time.sleep(60)


def spoil(obs, actions):
    obs[:] = 7
    print("spoilt", flush=True)
    return actions


good = FlipFirstOne
believer = Believer
deaf = Deaf


def crashing():
    return Broken(crash)


def vanishing():
    return Broken(vanish)


def hanging():
    return Broken(hang)


def spoiling():
    return Broken(spoil, after=0)


def too_few():
    return Broken(lambda obs, actions: actions[:-1])


def not_a_number():
    return Broken(lambda obs, actions: actions * np.nan)


def outside():
    return Broken(lambda obs, actions: actions + 100)


def flipping(cell=0, *, backwards=False):
    """Flips the same cell at every step, counted from the other end if that is asked."""
    return FlipsOne(-1 - cell if backwards else cell)


class FlipsOne(FlipFirstOne):
    def __init__(self, cell):
        self.cell = cell

    def act(self, obs):
        return np.full(len(obs), self.cell % (obs.shape[1] - 1))
