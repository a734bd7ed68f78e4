"""docs/results.md and docs/paper.md. See `tapebench.pages.results`."""

from tapebench.pages import results

if __name__ == "__main__":
    results.main()
