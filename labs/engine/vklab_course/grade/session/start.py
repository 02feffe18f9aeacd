"""First plugin of a session's process: leave out an import that costs three seconds, unused.

nbformat imports jsonschema, which imports rfc3987_syntax where it is installed, which builds a
grammar for international addresses. No format of notebooks has one.
"""

from __future__ import annotations

import sys

__all__ = ["UNUSED"]

UNUSED = "rfc3987_syntax"
sys.modules.setdefault(UNUSED, None)  # type: ignore[arg-type]
