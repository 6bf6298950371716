"""Hosts on one machine: network namespaces on a common switch, so that ranks meet over real sockets.

Needs ``ip`` (iproute2) and the right to make namespaces. Where that is missing the tests skip, or fail under
FASTLOAD_REQUIRE_NETNS=1.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from launch import PROGRAMS, Job, started

PORT = 29500  # each test has its own network


@dataclass(frozen=True)
class Host:
    """One namespace; its only link is ``eth0``."""

    name: str
    switch: str
    number: int

    @property
    def address(self) -> str:
        return f"10.77.0.{self.number + 1}"

    def command(self, *command: object) -> list[str]:
        """A command to be run on this host."""
        return ["ip", "netns", "exec", self.name, *map(str, command)]

    def cut_off(self) -> None:
        """Pull the plug: packets are lost in both directions, and nobody is told."""
        run("ip", "-n", self.switch, "link", "set", f"port{self.number}", "down")


def run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=100)


def build(names: list[str]) -> list[Host]:
    """A switch (the first name) and hosts."""
    switch, *hosts = names
    run("ip", "netns", "add", switch)
    run("ip", "-n", switch, "link", "add", "bridge", "type", "bridge")
    run("ip", "-n", switch, "link", "set", "bridge", "up")
    made = []
    for number, name in enumerate(hosts):
        host = Host(name, switch, number)
        run("ip", "netns", "add", name)
        port = f"port{number}"
        run("ip", "-n", switch, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name)
        run("ip", "-n", switch, "link", "set", port, "master", "bridge", "up")
        run("ip", "-n", name, "address", "add", f"{host.address}/24", "dev", "eth0")
        run("ip", "-n", name, "link", "set", "eth0", "up")
        run("ip", "-n", name, "link", "set", "lo", "up")
        made.append(host)
    return made


@contextlib.contextmanager
def network(count: int) -> Iterator[list[Host]]:
    """``count`` hosts; skips or fails where that is not permitted."""
    names = [f"fastload-{os.getpid()}-{number}" for number in range(count + 1)]
    try:
        if shutil.which("ip") is None:
            raise OSError("there is no command 'ip' (iproute2)")
        hosts = build(names)
    except (OSError, subprocess.CalledProcessError) as error:
        remove(names)
        reason = f"network namespaces cannot be made here: {getattr(error, 'stderr', None) or error}"
        if os.environ.get("FASTLOAD_REQUIRE_NETNS") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    try:
        yield hosts
    finally:
        remove(names)


def remove(names: list[str]) -> None:
    for name in names:
        with contextlib.suppress(OSError):
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, timeout=100)


@contextlib.contextmanager
def ranks_on(hosts: list[Host], each: int, program: str, *arguments: object) -> Iterator[list[Job]]:
    """``each`` ranks of a program on every host, numbered through; one process a host."""
    with contextlib.ExitStack() as stack:
        processes = []
        for host in hosts:
            fork = [sys.executable, PROGRAMS, "--fork", each, PORT, program, *arguments]
            variables = {
                "FIRST_HOST": hosts[0].address,
                "FIRST_RANK": str(host.number * each),
                "ALL_RANKS": str(len(hosts) * each),
                "GLOO_SOCKET_IFNAME": "eth0",
            }
            processes.append(stack.enter_context(started(host.command(*fork), **variables)))
        yield processes
