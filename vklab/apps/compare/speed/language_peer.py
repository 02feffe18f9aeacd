"""llama.cpp beside vklab: one turn of llama-bench on a file, for several depths of the cache.

Source: llama.cpp, tools/llama-bench.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vklab.errors import ModelError

LIMIT_S = 900.0
# Layers that llama-bench puts on the device: all of any model.
ALL_LAYERS = "999"
# A prompt that comes first, so that the clocks of a GPU are up when the others are timed.
WARMING = 2048

# Samples of tokens a second: of prompts and of generated tokens, by depth.
Rates = dict[tuple[str, int], list[float]]


def program(given: str | None) -> str | None:
    """Return the program llama-bench: the given one, or that on PATH; None if there is none.

    Raises ModelError for a path that is no program.
    """
    found = shutil.which(given or "llama-bench")
    if given and not found:
        raise ModelError(f"{given} is no program; give the path of llama-bench")
    return found


@dataclass(frozen=True)
class Peer:
    """llama-bench on one backend.

    Attributes:
        name: the name in the rows.
        program: the path of llama-bench.
        variables: environment variables that choose the backend.
        layers: layers on the device.
        warms: whether a long prompt comes first.
        repeats: the repetitions of each turn.
    """

    name: str
    program: str
    variables: tuple[tuple[str, str], ...]
    layers: str
    warms: bool
    repeats: int

    def turn(self, path: Path, prompt: int, generate: int, depths: Sequence[int]) -> Rates:
        """Run llama-bench once, and return its samples; ModelError with what it said if it fails.

        Args:
            path: the model's file.
            prompt: tokens of the prompt.
            generate: tokens to generate.
            depths: tokens in the cache before them.
        """
        prompts = f"{WARMING},{prompt}" if self.warms and prompt != WARMING else str(prompt)
        command = [
            self.program,
            "-m",
            str(path),
            "-p",
            prompts,
            "-n",
            str(generate),
            "-d",
            ",".join(map(str, depths)),
            "-ngl",
            self.layers,
            "-fa",
            "1",
            "-r",
            str(self.repeats),
            "-o",
            "json",
        ]
        rates: Rates = {}
        try:
            done = subprocess.run(
                command,
                env={**os.environ, **dict(self.variables)},
                text=True,
                capture_output=True,
                timeout=LIMIT_S,
                check=True,
            )
            for each in json.loads(done.stdout):
                what = "prompt" if each["n_prompt"] else "decode"
                if each["n_prompt"] in (0, prompt):
                    samples = [float(rate) for rate in each.get("samples_ts") or [each["avg_ts"]]]
                    rates[what, int(each.get("n_depth", 0))] = samples
        except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError) as error:
            said = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
            raise ModelError(said[-1] if said else repr(error)) from error
        return rates


def peers(llama: str | None, on_cpu: bool, repeats: int) -> list[Peer]:
    """Return llama.cpp's Vulkan backend; on a CPU's driver its CPU backend, too.

    Args:
        llama: the path of llama-bench; None for no peer.
        on_cpu: whether the device is a CPU, which llama.cpp takes only if it is named.
        repeats: the repetitions of each turn.
    """
    if llama is None:
        return []
    if not on_cpu:
        return [Peer("llama.cpp", llama, (), ALL_LAYERS, True, repeats)]
    visible = "GGML_VK_VISIBLE_DEVICES"
    return [
        Peer("llama.cpp", llama, ((visible, "0"),), ALL_LAYERS, False, repeats),
        Peer("llama.cpp CPU", llama, ((visible, ""),), "0", False, repeats),
    ]
