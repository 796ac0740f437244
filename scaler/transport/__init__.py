"""Messages between processes: `listen` and `connect`, and the port they implement.

Only this package knows sockets and ZeroMQ. Importing it loads neither: ZeroMQ is loaded by a listener and by a client
whose scheduler is on another machine.
"""

from scaler.transport.address import Address
from scaler.transport.candidates import PROBE, Candidates
from scaler.transport.connecting import connect
from scaler.transport.framing import GREETING_BYTES, check_size, size_of
from scaler.transport.listening import listen
from scaler.transport.monitor_listener import (
    FIRST_PEER,
    MonitorListener,
    SocketFile,
    connect_file,
    open_monitor_listener,
)
from scaler.transport.port import Connection, Frame, Listener, Message, Sendable
from scaler.transport.security import (
    Security,
    exposure,
    joining_security,
    known_security,
    load_or_create,
    security_of,
    surrounding_security,
)
