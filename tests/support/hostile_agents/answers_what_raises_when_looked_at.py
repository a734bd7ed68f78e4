r"""both: act\(\) failed: RuntimeError: look away"""


class Shy:
    def __array__(self, *given, **options):
        raise RuntimeError("look away")


class Agent:
    def reset(self, num_envs):
        pass

    def act(self, obs):
        return Shy()


make = Agent
