r"""apart: act\(\) took longer than 2 seconds"""


class Agent:
    def reset(self, num_envs):
        pass

    def act(self, obs):
        while True:
            pass


make = Agent
