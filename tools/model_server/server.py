"""Runs a real vLLM on the processor, with a model that has no trained weights.

The model is small enough for two cores: some hundred tokens a second. What it answers is noise; how
it queues, batches and counts requests is vLLM's own.
"""

from __future__ import annotations

import contextlib
import json
import re
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

from tools.control_plane.daemon import Daemon
from tools.model_server.install import Installation

MODEL = "tiny-llama"
MAX_RUNNING = 4
"""Requests of a batch (--max-num-seqs): all others wait."""
_VOCABULARY = 300
_BLOCKS = 16
"""Blocks of 128 tokens in the KV cache: few, so that a full batch uses about half of them."""
_CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 1024,
    "num_attention_heads": 8,
    "num_hidden_layers": 4,
    "num_key_value_heads": 8,
    "max_position_embeddings": 2048,
    "vocab_size": _VOCABULARY,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "rms_norm_eps": 1e-5,
    "torch_dtype": "float32",
}
_FLAGS = (
    *("--load-format", "dummy"),
    *("--served-model-name", MODEL),
    *("--max-model-len", "1024"),
    *("--max-num-seqs", str(MAX_RUNNING)),
    *("--num-gpu-blocks-override", str(_BLOCKS)),
    *("--dtype", "float32"),
    "--enforce-eager",
)
_ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
}
_START_SECONDS = 600.0
PORT = 8000
ADDRESSES = ("127.8.0.1", "127.8.0.2")
"""Of the servers: each has one of its own, as the pod that it runs for."""


def write_model(folder: Path) -> None:
    """Write the configuration and the tokenizer of the model: one token per byte."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(_CONFIG))
    tokens = ["<s>", "</s>", *_byte_symbols()]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    special = [_special(vocabulary[token], token) for token in ("<s>", "</s>")]
    flags = {"add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    tokenizer = {
        "version": "1.0",
        "added_tokens": special,
        "pre_tokenizer": {"type": "ByteLevel", **flags},
        "decoder": {"type": "ByteLevel", **flags},
        "model": {"type": "BPE", "vocab": vocabulary, "merges": []},
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": "</s>",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def _byte_symbols() -> list[str]:
    """Return the characters by which byte-level tokenizers write the 256 bytes."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = (byte for byte in range(256) if byte not in printable)
    symbols = {byte: chr(byte) for byte in printable}
    symbols |= {byte: chr(256 + number) for number, byte in enumerate(others)}
    return [symbols[byte] for byte in range(256)]


def _special(number: int, token: str) -> Mapping[str, object]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": number, "content": token, "special": True, **flags}


class Server:
    """One vLLM on an address of the loopback range."""

    def __init__(self, installation: Installation, model: Path, address: str, log: Path) -> None:
        self.url = f"http://{address}:{PORT}"
        self.address = address
        command: tuple[str | Path, ...] = (
            installation.program,
            "serve",
            model,
            *_FLAGS,
            f"--host={address}",
            f"--port={PORT}",
        )
        environment = {**_ENVIRONMENT, "LD_PRELOAD": installation.preloaded}
        assignments = (f"{name}={value}" for name, value in environment.items())
        self._daemon = Daemon(
            "vllm",
            ("env", *assignments, *command),
            log,
            self._is_ready,
            ready_timeout=_START_SECONDS,
        )

    def start(self) -> None:
        """Start it, wait until it is ready and send the first request, which compiles kernels."""
        self._daemon.start()
        self.complete("warm-up", tokens=4)

    def stop(self) -> None:
        """End it."""
        self._daemon.stop()

    def complete(self, prompt: str, *, tokens: int) -> None:
        """Request `tokens` tokens after `prompt`, and wait for them."""
        body = {
            "model": MODEL,
            "prompt": prompt,
            "max_tokens": tokens,
            "ignore_eos": True,
        }
        request = urllib.request.Request(
            f"{self.url}/v1/completions",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=_START_SECONDS) as response:
            response.read()

    def exposition(self) -> str:
        """Return its metrics in the text format."""
        return exposition(self.address)

    def _is_ready(self) -> bool:
        url = f"{self.url}/health"
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=2) as response:
            return bool(response.status == 200)
        return False


def exposition(address: str) -> str:
    """Return what the server at an address exposes, in the text format."""
    with urllib.request.urlopen(f"http://{address}:{PORT}/metrics", timeout=10) as response:
        return str(response.read(), "utf-8")


def value(exposition: str, series: str) -> float:
    """Return the value of a series that a server exposes once."""
    (line,) = re.findall(rf"^{series}{{.*}} (.*)$", exposition, re.MULTILINE)
    return float(line)


@contextlib.contextmanager
def running(installation: Installation, folder: Path, address: str) -> Iterator[Server]:
    """Run a server until the context ends. `folder` has its model and its log."""
    model = folder / "model"
    write_model(model)
    server = Server(installation, model, address, folder / f"vllm-{address}.log")
    try:
        server.start()
        yield server
    finally:
        server.stop()
