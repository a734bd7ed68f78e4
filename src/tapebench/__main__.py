"""`python -m tapebench` is `tape`."""

from tapebench.cli import main

main()
