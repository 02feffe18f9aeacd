"""Bootstrap: the set-up of `.venv` and system packages before `python3 -m vklab lab|test`.

Standard library only, Python 3.11 to 3.13: nothing is installed yet when this code runs.
choose (the Python of a command), environment (the .venv), system (loader, driver, tools),
steps (commands with a log and a time limit). Visited by lab 00.
"""
