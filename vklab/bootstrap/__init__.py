"""From a bare machine to a working `.venv`: what `python3 -m vklab lab|test` does first.

Standard library only, Python 3.11 to 3.13: nothing is installed yet when this runs.
choose (which Python runs a command), environment (the .venv), system (loader, driver, tools),
steps (commands with a log and a limit). Visited by lab 00.
"""
