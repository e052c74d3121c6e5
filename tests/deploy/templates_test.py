#!/usr/bin/env python3
"""Processes on other machines and in containers: a server started through ssh and docker (fakes of them in PATH) is
measured, and is gone afterwards, also when plumb is killed.

Usage: templates_test.py BUILD_DIR
"""
import os
import signal
import subprocess
import threading

import deploy_support
from deploy_support import DeploymentTest, listening_process

# As sshd does: the command runs in a session of its own, and outlives a client that is killed.
SSH = """#!/bin/sh
echo "$@" >> "$FAKES/ssh.calls"
while [ $# -gt 1 ]; do case $1 in -o|-p) shift 2 ;; *) break ;; esac; done
[ "$1" = gpu1.example ] || { echo "no such host: $1"; exit 255; }
shift
setsid sh -c "$*" &
trap 'exit 143' TERM
wait $!
"""

# As docker does: the container is no child of the client but of a daemon, here of the test itself; rm --force ends it.
DOCKER = """#!/bin/sh
echo "$@" >> "$FAKES/docker.calls"
case $1 in
run) shift
  while :; do case $1 in
    --name) name=$2; shift 2 ;;
    --network|--stop-signal|--gpus|--cpuset-cpus|--env|--workdir) shift 2 ;;
    --rm|--init) shift ;;
    *) break ;; esac; done
  shift
  printf '%s\\n' "$@" > "$FAKES/$name.tmp" && mv "$FAKES/$name.tmp" "$FAKES/$name.request"
  trap 'exit 143' TERM
  while [ ! -e "$FAKES/$name.ended" ]; do sleep 0.05; done ;;
rm) touch "$FAKES/$3.end"; while [ -e "$FAKES/$3.container" ]; do sleep 0.02; done ;;
ps) ls "$FAKES" | grep '\\.container$' ; true ;;
esac
"""


class Daemon(threading.Thread):
    """Starts what docker run asks for, and kills what docker rm names."""

    def __init__(self, folder, environment):
        super().__init__(daemon=True)
        self.folder, self.environment, self.stop, self.containers = folder, environment, threading.Event(), {}

    def run(self):
        while not self.stop.wait(0.02):
            for request in self.folder.glob("*.request"):
                words = request.read_text().splitlines()
                request.rename(request.with_suffix(".container"))
                self.containers[request.stem] = subprocess.Popen(words, stdin=subprocess.DEVNULL, env=self.environment,
                                                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            for name, process in list(self.containers.items()):
                if (self.folder / (name + ".end")).exists():
                    process.kill()
                if process.poll() is not None:
                    del self.containers[name]
                    (self.folder / (name + ".container")).unlink()
                    (self.folder / (name + ".ended")).touch()


class Templates(DeploymentTest):
    def deployment(self, where):
        return self.file(listening_process("s", "{port:s}", extra=where) +
                         '[[endpoint]]\nurl = "http://127.0.0.1:{port:s}"\n')

    def measured_and_gone(self, where, calls, *parts):
        code, out, err = self.plumb("probe", self.deployment(where), "--suite", "short", "--trials", "2")
        self.assertEqual(code, 0, (out, err))
        self.assertEqual(self.processes(), [])
        text = (self.folder / calls).read_text()
        for part in parts:
            self.assertIn(part, text)

    def docker(self):
        self.fake("docker", DOCKER)
        daemon = Daemon(self.folder, self.environment)
        daemon.start()
        self.addCleanup(daemon.join)
        self.addCleanup(daemon.stop.set)

    def test_docker(self):
        self.docker()
        self.measured_and_gone('via = "docker"\nimage = "engine:1"\nenv = {A = "b"}', "docker.calls",
                               "--network host", "--env A engine:1", "rm --force plumb-")

    def test_ssh(self):
        self.fake("ssh", SSH)
        # The host's port is this machine's: what answers there before the launch must be nobody.
        text = self.deployment('via = "ssh"\nhost = "gpu1.example"').read_text().replace('ready = {http = "/health"}', "")
        self.file(text)
        code, out, err = self.plumb("probe", "deployment.toml", "--suite", "short", "--trials", "2")
        self.assertEqual(code, 0, (out, err))
        self.assertEqual(self.processes(), [])
        calls = (self.folder / "ssh.calls").read_text()
        self.assertIn("exec env", calls)
        self.assertIn("kill -15 -- -$p", calls)

    def test_a_host_that_is_not_there_is_named(self):
        self.fake("ssh", SSH)
        code, out, err = self.plumb("probe", self.deployment('via = "ssh"\nhost = "gpu2.example"'))
        self.assertEqual(code, 3, (out, err))
        self.assertIn("no such host: gpu2.example", err)

    def test_a_killed_plumb_leaves_no_container(self):
        self.docker()
        file = self.deployment('via = "docker"\nimage = "engine:1"')
        running = subprocess.Popen(self.command("probe", file, "--suite", "needle", "--trials", "1000"),
                                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                   cwd=self.folder, env=self.environment)
        self.wait_until(lambda: list(self.folder.glob("*.container")), "the container starts")
        os.kill(running.pid, signal.SIGKILL)
        running.wait()
        self.wait_until(lambda: not self.processes(), "nothing is left", 60)
        self.assertEqual(list(self.folder.glob("*.container")), [])


if __name__ == "__main__":
    deploy_support.main(__doc__)
