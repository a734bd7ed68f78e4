r"""both: act\(\) (failed: ValueError|gave)"""


class Agent:
    def reset(self, num_envs):
        pass

    def act(self, obs):
        return [[0], [0, 1]] * (len(obs) // 2)


make = Agent
