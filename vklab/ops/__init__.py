"""Register every ONNX operator: one declarative function each, one module per family.

Importing this package imports every module in its folder. Pure data, no GPU.
Visited by lab 09.
"""

import importlib
import pkgutil

__all__ = [module.name for module in pkgutil.iter_modules(__path__)]

for _name in __all__:
    importlib.import_module(f"{__name__}.{_name}")
