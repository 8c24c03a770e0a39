"""Relay program in a container without a network: forwards a loopback port to the proxy's socket in a mounted folder.

``python -I relay.py SOCKET PORT`` returns once the port is open, and leaves a background process that serves it. The
program imports nothing of divebook, which a container need not have.
"""

import asyncio
import os
import socket
import sys


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()


async def _relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    proxy_writer = None
    try:
        proxy_reader, proxy_writer = await asyncio.open_unix_connection(sys.argv[1])
        await asyncio.gather(_copy(reader, proxy_writer), _copy(proxy_reader, writer))
    except OSError:
        pass  # one side has closed, or the proxy does not run: the client sees the end of its connection
    finally:
        for end in (proxy_writer, writer):
            if end is not None:
                end.close()


async def _serve(listening: socket.socket) -> None:
    async with await asyncio.start_server(_relay, sock=listening) as server:
        await server.serve_forever()


def _main() -> None:
    listening = socket.create_server(("127.0.0.1", int(sys.argv[2])))
    # The port is open by now, so the caller may continue; the child serves it.
    if os.fork():
        return
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):  # the process that started this one waits for the end of its streams
        os.dup2(nothing, standard)
    asyncio.run(_serve(listening))


if __name__ == "__main__":
    _main()
