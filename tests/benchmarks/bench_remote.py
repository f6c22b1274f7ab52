"""A pass over a store of S3 through a network of a given bandwidth and latency, against the bare transfer of its bytes.

    python tests/benchmarks/bench_remote.py [--bandwidth 200] [--latency 20] [--rows 80000] [--libraries obstore s3fs]

The server is moto's, in a process of its own, behind a proxy (in another) that holds every request back for the latency
and lets all responses together through at the bandwidth. The bare transfer fetches the same chunks over as many
connections as are best for it and drops the bytes. All sides take turns; the ratio is in wall time, which is what a
network costs, so the machine must have cores to spare: lower the bandwidth on a busy one. Needs `moto[server]`.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from typing import Any
from unittest import mock

import numpy as np
import zarr

import sketchselect as sks
from sketchselect.readers.zarr import store
from sketchselect.readers.zarr.array import OPEN_ARRAYS

BUCKET, KEYS = "rows", {"key": "any", "secret": "word"}
CONNECTIONS = 8
PIECE = 1 << 18
CREDIT = 0.05
"""Seconds of the bandwidth that may be made up for when the proxy was not run."""


async def shape(port: int, target: int, bandwidth: float, latency: float) -> None:
    """Pass connections to `port` on to the port `target`; bytes a second, seconds."""
    loop, free = asyncio.get_running_loop(), 0.0

    async def up(client: socket.socket, server: socket.socket) -> None:
        while data := await loop.sock_recv(client, PIECE):
            await asyncio.sleep(latency)
            await loop.sock_sendall(server, data)
        server.shutdown(socket.SHUT_WR)

    async def down(server: socket.socket, client: socket.socket) -> None:
        nonlocal free
        buffer = memoryview(bytearray(PIECE))
        while n := await loop.sock_recv_into(server, buffer):
            free = max(free, time.perf_counter() - CREDIT) + n / bandwidth
            if (wait := free - time.perf_counter()) > 0.001:
                await asyncio.sleep(wait)
            await loop.sock_sendall(client, buffer[:n])

    async def serve(client: socket.socket) -> None:
        with client, socket.socket() as server, suppress(OSError):
            server.setblocking(False)
            await loop.sock_connect(server, ("127.0.0.1", target))
            directions = [asyncio.ensure_future(up(client, server)), asyncio.ensure_future(down(server, client))]
            await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
            for direction in directions:
                direction.cancel()
            await asyncio.gather(*directions, return_exceptions=True)

    with socket.create_server(("127.0.0.1", port), backlog=256) as listener:
        listener.setblocking(False)
        print(listener.getsockname()[1], flush=True)
        tasks = set()
        while True:
            client, _ = await loop.sock_accept(listener)
            client.setblocking(False)
            task = asyncio.ensure_future(serve(client))
            tasks.add(task)
            task.add_done_callback(tasks.discard)


def serve_s3() -> None:
    """Run the server until the process is ended."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    print(server.get_host_and_port()[1], flush=True)
    threading.Event().wait()


@contextmanager
def process(*arguments: Any) -> Iterator[int]:
    """Run this script with these arguments; yield the port that it prints first."""
    command = [sys.executable, __file__, *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as running:
        try:
            assert running.stdout is not None
            yield int(running.stdout.readline())
        finally:
            running.kill()


def put_store(port: int, name: str, n_rows: int, n_columns: int, chunks: tuple[int, int]) -> list[str]:
    """Write a store of random numbers into the bucket; return the keys of its chunks."""
    import boto3

    names = {"aws_access_key_id": "any", "aws_secret_access_key": "word", "region_name": "us-east-1"}
    client = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{port}", **names)
    with suppress(client.exceptions.BucketAlreadyOwnedByYou, client.exceptions.BucketAlreadyExists):
        client.create_bucket(Bucket=BUCKET)
    rng, keys = np.random.default_rng(0), []
    array = zarr.create_array(
        zarr.storage.MemoryStore(), shape=(n_rows, n_columns), chunks=chunks, dtype="float32", compressors=None
    )
    client.put_object(Bucket=BUCKET, Key=f"{name}/zarr.json", Body=json.dumps(array.metadata.to_dict(), default=str))
    block = rng.standard_normal(chunks, dtype=np.float32)
    for i in range(-(-n_rows // chunks[0])):
        for j in range(-(-n_columns // chunks[1])):
            block[:, 0] = rng.standard_normal(chunks[0])
            keys.append(f"{name}/c/{i}/{j}")
            client.put_object(Bucket=BUCKET, Key=keys[-1], Body=block.tobytes(), ACL="public-read")
    return keys


def transfer(port: int, keys: list[str], connections: int) -> float:
    """Return the seconds of fetching objects over some connections, with the bytes dropped."""
    waiting, lock = iter(keys), threading.Lock()

    def fetch() -> None:
        connection, buffer = http.client.HTTPConnection("127.0.0.1", port), bytearray(PIECE)
        while True:
            with lock:
                key = next(waiting, None)
            if key is None:
                connection.close()
                return
            connection.request("GET", f"/{BUCKET}/{key}")
            response = connection.getresponse()
            assert response.status == 200, response.status
            while response.readinto(buffer):
                pass

    threads = [threading.Thread(target=fetch) for _ in range(connections)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - start


def one_pass(port: int, name: str, library: str, size: int, client: Any) -> tuple[float, float, float]:
    """Return seconds of opening the store and of a pass, and the processor seconds of both; a sketch of `size` rows."""
    options = {**KEYS, "endpoint_url": f"http://127.0.0.1:{port}"}
    spec = {"stats": sks.ColumnStats()} | ({"sketch": sks.FrequentDirections(size=size)} if size else {})
    OPEN_ARRAYS.clear()
    reader = nullcontext() if library == "obstore" else mock.patch.object(store, "s3_store", return_value=None)
    with reader:
        start, cpu = time.perf_counter(), time.process_time()
        matrix = sks.open_matrix(f"s3://{BUCKET}/{name}", storage_options=options)
        opened = time.perf_counter()
        sks.summarize(matrix, spec, client=client)
        return opened - start, time.perf_counter() - opened, time.process_time() - cpu


STORES = {"16 MB chunks": (4000, 1000), "2 MB chunks": (500, 1000), "4 chunks across": (4000, 250)}


def main() -> None:
    """Print the table."""
    if sys.argv[1:2] == ["proxy"]:
        port, target, bandwidth, latency = sys.argv[2:]
        asyncio.run(shape(int(port), int(target), float(bandwidth), float(latency)))
        return
    if sys.argv[1:2] == ["server"]:
        serve_s3()
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bandwidth", type=float, default=200, help="megabytes a second")
    parser.add_argument("--latency", type=float, default=20, help="milliseconds a request")
    parser.add_argument("--rows", type=int, default=80_000, help="of 1,000 columns in float32")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--libraries", nargs="+", default=["obstore", "s3fs"])
    parser.add_argument("--size", type=int, default=0, help="rows of a sketch beside the column statistics")
    parser.add_argument("--client", default="threads")
    parser.add_argument("--stores", nargs="+", default=list(STORES), choices=list(STORES))
    given = parser.parse_args()
    with ExitStack() as stack:
        server = stack.enter_context(process("server"))
        port = stack.enter_context(process("proxy", 0, server, given.bandwidth * 1e6, given.latency / 1e3))
        for number, layout in enumerate(given.stores):
            name = f"store{number}"
            keys = put_store(server, name, given.rows, 1000, STORES[layout])
            bare: list[float] = []
            sides: dict[str, list[tuple[float, float, float]]] = {library: [] for library in given.libraries}
            for library in given.libraries:
                one_pass(port, name, library, given.size, given.client)
            for _ in range(given.repeats):
                bare.append(min(transfer(port, keys, n) for n in (CONNECTIONS, 2 * CONNECTIONS)))
                for library, seconds in sides.items():
                    seconds.append(one_pass(port, name, library, given.size, given.client))
            size = 4e-3 * given.rows
            middle = statistics.median(bare)
            print(f"{layout}: {size:.0f} MB; bare transfer {middle:.2f} s, {size / middle:.0f} MB/s", flush=True)
            for library, seconds in sides.items():
                opens, walls, cpus = zip(*seconds, strict=True)
                ratios = sorted(wall / floor for wall, floor in zip(walls, bare, strict=True))
                print(
                    f"  {library:<8} opened in {statistics.median(opens):.2f} s   wall {statistics.median(walls):.2f} s"
                    f"   CPU {statistics.median(cpus):6.2f} s   "
                    f"ratio {statistics.median(ratios):5.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})   aim 1.1",
                    flush=True,
                )


if __name__ == "__main__":
    main()
