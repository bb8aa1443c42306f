"""Scheme to module by convention: the module's file name is the scheme it serves.

Knows what files a package folder holds and imports the one asked for; does not know what any of them does.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from types import ModuleType

__all__ = ["load", "schemes"]

_SCHEME = re.compile(r"[a-z][a-z0-9_]*")


def schemes(package: str) -> tuple[str, ...]:
    """Return the schemes that `package` has a file for, sorted. Imports the package, none of its modules."""
    folder = importlib.import_module(package).__path__
    names = (module.name for module in pkgutil.iter_modules(folder) if not module.ispkg)
    return tuple(sorted(name for name in names if _SCHEME.fullmatch(name)))


def load(package: str, scheme: str) -> ModuleType:
    """Import `<package>.<scheme>`, if the package folder holds a file of that name.

    Raises LookupError naming the schemes there are, and ImportError as it comes when the module itself needs
    something that is not installed.
    """
    known = schemes(package)
    # SECURITY: only a file found in our own folder is imported, so a setting cannot name any other module.
    # The scheme is not quoted: it may be the start of a DSN with a password in it.
    if scheme not in known:
        raise LookupError(f"no such scheme; there are: {', '.join(known) or 'none'}")
    return importlib.import_module(f"{package}.{scheme}")
