"""Building the NVML stub, and giving it orders."""

import os
import shutil
import subprocess
from importlib import metadata
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("nvml_stub.c")


def _header_folder() -> Path:
    try:
        files = metadata.files("nvidia-nvml-dev") or []
    except metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.name == "nvml.h":
            return Path(str(file.locate())).parent
    pytest.skip("needs nvml.h of the package nvidia-nvml-dev")


def build(folder: Path) -> Path:
    """Compile the stub into ``folder`` and return the folder; skip the test where that cannot be done."""
    pytest.importorskip("pynvml", reason="needs the package nvidia-ml-py")
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("needs a C compiler (cc, gcc or clang)")
    command = [compiler, "-shared", "-fPIC", "-std=gnu11", "-Wall", "-Wextra", "-Werror"]
    command += [f"-I{_header_folder()}", "-Wl,-soname,libnvidia-ml.so.1"]
    subprocess.run([*command, "-o", str(folder / "libnvidia-ml.so.1"), str(SOURCE)], check=True, timeout=60)
    return folder


class Orders:
    """What the stub does, from the next call on; replaced as a whole."""

    def __init__(self, library: Path, file: Path) -> None:
        self._file = file
        self._library = library
        self.give("gpus 1")

    def give(self, *lines: str) -> None:
        fresh = self._file.with_suffix(".new")
        fresh.write_text("".join(f"{line}\n" for line in lines))
        fresh.replace(self._file)

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a process that meets the stub instead of a driver."""
        return {**os.environ, "LD_LIBRARY_PATH": str(self._library), "NVML_STUB": str(self._file)}
