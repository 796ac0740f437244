"""A TCP proxy that keeps everything for a while: `python delay.py PORT HOST PORT MILLISECONDS`."""

import asyncio
import sys


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seconds: float) -> None:
    """What comes goes on, later; the end of one side is that of the other."""
    loop = asyncio.get_running_loop()
    try:
        while data := await reader.read(1 << 16):
            loop.call_later(seconds, writer.write, data)
    except OSError:
        pass
    loop.call_later(2 * seconds, writer.close)


async def main() -> None:
    """Serve until killed."""
    port, host, target, ms = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), float(sys.argv[4])

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, here = await asyncio.open_connection(host, target)
        except OSError:
            writer.close()
            return
        await asyncio.gather(pump(reader, here, ms / 1000), pump(there, writer, ms / 1000))

    server = await asyncio.start_server(serve, "0.0.0.0", port)
    await server.serve_forever()


asyncio.run(main())
