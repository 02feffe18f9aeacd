"""Entry point of `python3 -m vklab ...` on any machine, and of the console script `vklab`.

Chooses the Python that has the packages (setting it up for `lab` and `test`), then calls
vklab.apps.cli. This file and the package's __init__ must parse on old Pythons, to report their
version.
"""

import sys


def main(arguments=None):  # type: ignore[no-untyped-def]
    """Run one vklab command and return its exit code."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if not (3, 11) <= sys.version_info[:2] <= (3, 13):
        found = "%d.%d" % sys.version_info[:2]  # noqa: UP031  (old Pythons must parse this file)
        return _stop("needs Python 3.11, 3.12 or 3.13; this is Python " + found)
    # Imported here: these modules do not parse on the Pythons that the line above refuses.
    from pathlib import Path

    from vklab.apps.bootstrap import choose, steps

    try:
        python = choose.choose_python(arguments, Path(__file__).resolve().parent.parent)
        if python is not None:
            return choose.run_in(python, arguments)
    except steps.SetupStopped as stopped:
        return _stop(str(stopped))
    except OSError as error:
        return _stop("cannot set up: %s" % error)  # noqa: UP031
    except KeyboardInterrupt:
        return _stop("interrupted; run the same command again to complete the set-up", 130)
    # Imported here: it needs the packages whose presence the lines above have checked.
    from vklab.apps import cli

    return cli.main(arguments)


def _stop(text, exit_code=2):  # type: ignore[no-untyped-def]
    sys.stderr.write("vklab: " + text + "\n")
    return exit_code


if __name__ == "__main__":
    sys.exit(main())
