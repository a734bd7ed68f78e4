"""The command line, as a test types it."""

from tapebench import cli


def tape(capsys, *argv):
    """Exit code, standard output and standard error of one command."""
    try:
        cli.main(list(argv))
        code = 0
    except SystemExit as ended:
        code = ended.code
    captured = capsys.readouterr()
    return code, captured.out, captured.err
