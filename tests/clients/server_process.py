"""A `plumb serve` of the phantom for a test: started on a free port, stopped at the end."""
import pathlib
import re
import signal
import subprocess
import tempfile
import time

START_TIMEOUT_S = 120
STOP_TIMEOUT_S = 60


class Server:
    def __init__(self, build, source, *options):
        self.log = tempfile.NamedTemporaryFile("w+", prefix="plumb-serve-", suffix=".log")
        self.process = subprocess.Popen(
            [str(pathlib.Path(build) / "plumb"), "serve", str(pathlib.Path(source) / "phantom/checkpoint"), "--port", "0", *options],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self.log)
        try:
            self.port = self._wait_for_port()
        except BaseException:
            self.stop()
            raise
        self.url = f"http://127.0.0.1:{self.port}"

    def _wait_for_port(self):
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            found = re.search(r"on http://127\.0\.0\.1:(\d+)", self.text())
            if found:
                return int(found[1])
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        raise RuntimeError(f"the server did not start:\n{self.text()}")

    def text(self):
        return pathlib.Path(self.log.name).read_text(errors="replace")

    def rss_bytes(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) * 1024

    def stop(self):
        """Ends it and returns its exit code; it has to go within STOP_TIMEOUT_S."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
