r"""both: act\(\) gave bool: actions are integer cells"""


class Agent:
    def reset(self, num_envs):
        pass

    def act(self, obs):
        return obs[:, 0] > 0


make = Agent
