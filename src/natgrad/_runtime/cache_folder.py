"""The folder where natgrad caches data sets and compiled programs."""

import os
from pathlib import Path


def cache_folder(system: str, home: Path) -> Path:
    """natgrad's cache folder, by the conventions of a platform such as "linux"."""
    if system == "darwin":
        return home / "Library" / "Caches" / "natgrad"
    if system == "win32":
        local = os.environ.get("LOCALAPPDATA")
        return (Path(local) if local else home / "AppData" / "Local") / "natgrad"
    # The XDG standard says to ignore paths that are not absolute.
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (cache if cache.is_absolute() else home / ".cache") / "natgrad"
