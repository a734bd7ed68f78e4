"""The README's headline: its table and its picture. See `tapebench.pages.headline`."""

from tapebench.pages import headline

if __name__ == "__main__":
    headline.main()
