"""Other runtimes beside vklab, in numbers (`parity`) and in time (`speed`).

A model of `models` goes to the runtimes of a `registry`, each a Child of `children`, in turn. What
they return is judged against the truth or timed, and is a row of a `report` or of a record. Nothing
of this is loaded by `import vklab`; each heavy package loads through a named loader.
"""
