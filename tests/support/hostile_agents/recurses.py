r"""both: act\(\) failed: RecursionError"""


class Agent:
    def reset(self, num_envs):
        pass

    def act(self, obs):
        return self.act(obs)


make = Agent
