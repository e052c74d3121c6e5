"""What the tests of deployments share: plumb, a folder, fakes in PATH, and who is still there."""
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
SERVER = HERE.parent / "fakes" / "recalling_server.py"
TIMEOUT_S = 120
PLUMB = None


def main(usage):
    global PLUMB
    if len(sys.argv) < 2:
        sys.exit(usage)
    PLUMB = pathlib.Path(sys.argv[1]).resolve() / "plumb"
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])


def listening_process(name, port, *options, extra=""):
    words = ", ".join('"%s"' % word for word in (sys.executable, SERVER, port, *options))
    return '[[process]]\nname = "%s"\ncommand = [%s]\nready = {http = "/health"}\n%s\n' % (name, words, extra)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class DeploymentTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="plumb-deploy-"))
        self.bin = self.folder / "bin"
        self.bin.mkdir()
        self.environment = dict(os.environ, PATH="%s:%s" % (self.bin, os.environ["PATH"]), PLUMB_DEPLOY_TEST=self.folder.name,
                                FAKES=str(self.folder))

    def tearDown(self):
        left = self.processes()
        for pid in left:
            os.kill(pid, 9)
        shutil.rmtree(self.folder)
        self.assertEqual(left, [], "processes outlive the test")

    def fake(self, name, script):
        path = self.bin / name
        path.write_text(script)
        path.chmod(0o755)

    def file(self, text):
        path = self.folder / "deployment.toml"
        path.write_text(text)
        return path

    def command(self, *args):
        return [str(PLUMB), *map(str, args)]

    def plumb(self, *args):
        done = subprocess.run(self.command(*args), stdin=subprocess.DEVNULL, capture_output=True, timeout=TIMEOUT_S,
                              cwd=self.folder, env=self.environment, check=False)
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    def processes(self):
        """Everything that was started with the environment of this test and still runs."""
        mark = ("PLUMB_DEPLOY_TEST=%s" % self.folder.name).encode()
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and mark in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                pass
        return found

    def wait_until(self, condition, what, seconds=30):
        until = time.monotonic() + seconds
        while not condition():
            self.assertLess(time.monotonic(), until, what)
            time.sleep(0.05)


class RunningServerTest(DeploymentTest):
    """With fake servers that run already; they are killed before it is asked who is left."""
    SCRIPT = SERVER

    def server(self, *options, **environment):
        port = free_port()
        process = subprocess.Popen([sys.executable, str(self.SCRIPT), str(port), *options], stdout=subprocess.DEVNULL,
                                   env=dict(self.environment, **environment))
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        url = "http://127.0.0.1:%d" % port

        def answers():
            try:
                return urllib.request.urlopen(url + "/health").status == 200
            except OSError:
                return False
        self.wait_until(answers, "the server listens")
        return url

    def tearDown(self):
        self.doCleanups()
        super().tearDown()
