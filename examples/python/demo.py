"""Shows what durable means: runs assistant.py, kills it in the middle of a streaming turn while a follow-up is queued,
starts it again, and lets it finish. `make demo` runs this."""

import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

ASSISTANT = Path(__file__).with_name("assistant.py")
# On a real server the first words may take a while.
PATIENCE = 120 if os.environ.get("TURNWHEEL_BASE_URL") else 20


def heading(text: str) -> None:
    print(f"\n== {text}", flush=True)


def run_until_streaming(store: str) -> None:
    """Starts the assistant and kills it a moment after it began to answer."""
    child = subprocess.Popen([sys.executable, "-u", ASSISTANT, store], stdout=subprocess.PIPE)
    assert child.stdout is not None
    # A child that says nothing is killed as well, which ends the read below.
    patience, seen = threading.Timer(PATIENCE, child.kill), b""
    patience.start()
    while True:
        byte = child.stdout.read(1)
        if not byte:
            break
        sys.stdout.buffer.write(byte)
        sys.stdout.buffer.flush()
        seen += byte
        # The answer is what follows the prompt and the lines of the tool calls.
        if len(seen.splitlines()[-1]) >= 12 and seen.splitlines()[-1][:1] not in (b">", b"["):
            break
    patience.cancel()
    child.send_signal(signal.SIGKILL)
    child.wait()
    print(f"\n-- killed with SIGKILL (exit status {child.returncode})", flush=True)


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="turnwheel-demo-") as root:
        store = os.path.join(root, "sessions")
        heading("An agent with two tools answers; a follow-up is queued; then the process is killed in mid-stream")
        run_until_streaming(store)
        heading("What is on disk")
        for path in sorted(Path(store).rglob("*.jsonl*")):
            print(f"{path.relative_to(store)}  {path.stat().st_size} bytes")
        heading("Started again: it recovers, takes the queued follow-up and finishes")
        again = subprocess.run([sys.executable, "-u", ASSISTANT, store], stdout=subprocess.PIPE, timeout=PATIENCE)
        text = again.stdout.decode()
        print(text, end="")
        recovered = "the last turn ended: interrupted" in text and "And how far is that from 100?" in text
        finished = again.returncode == 0 and recovered
        heading("Nothing was lost" if finished else "This is not what should have happened")
        return 0 if finished else 1


if __name__ == "__main__":
    sys.exit(main())
