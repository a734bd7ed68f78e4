r"""both: act\(\) failed: GeneratorExit"""


class Agent:
    def reset(self, num_envs):
        pass

    def act(self, obs):
        raise GeneratorExit


make = Agent
