r"""both: act\(\) failed: MuteError"""


class MuteError(Exception):
    def __str__(self):
        raise RuntimeError("no words")


class Agent:
    def reset(self, num_envs):
        pass

    def act(self, obs):
        raise MuteError


make = Agent
