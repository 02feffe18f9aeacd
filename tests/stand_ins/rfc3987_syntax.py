"""Found before the package of this name, which compiles a grammar for five seconds when imported.

jsonschema, which every process that reads a notebook imports, does without it.
"""

raise ImportError("the tests do without rfc3987_syntax")
