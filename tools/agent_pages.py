"""The pages of the agents in docs/agents. See `tapebench.pages.agents`."""

from tapebench.pages import agents

if __name__ == "__main__":
    agents.main()
