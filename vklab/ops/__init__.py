"""What each ONNX operator dispatches: one declarative function per operator, by family.

Importing this package registers them all: every module in its folder. Pure data, no GPU.
Visited by labs 09 and 20.
"""

import importlib
import pkgutil

__all__ = [module.name for module in pkgutil.iter_modules(__path__)]

for _name in __all__:
    importlib.import_module(f"{__name__}.{_name}")
