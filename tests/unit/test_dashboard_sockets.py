"""The socket of a page, as it ends: whatever comes in between, its session goes with it."""

import asyncio
from types import SimpleNamespace

import pytest

pytest.importorskip("bokeh")

from bokeh.document import Document
from bokeh.protocol import Protocol
from bokeh.protocol.exceptions import ProtocolError
from bokeh.server.connection import ServerConnection
from bokeh.server.session import ServerSession
from bokeh.util.token import generate_jwt_token, get_session_id

from scaler.monitor.dashboard.handlers import PageSocket


class Contexts:
    """The sessions of one page, of which there is one, as Bokeh's application gives them."""

    def __init__(self) -> None:
        self.token = generate_jwt_token("one", signed=False)
        self.session = ServerSession(get_session_id(self.token), Document())
        self.is_gone = False

    async def create_session_if_needed(self, *_):
        return self.session

    def get_session(self, identity):
        if self.is_gone:
            raise ProtocolError(f"No such session {identity}")
        return self.session


def socket_of(contexts: Contexts) -> PageSocket:
    """A socket whose browser has gone."""
    made = PageSocket.__new__(PageSocket)
    made.application = SimpleNamespace(
        new_connection=lambda *parts: ServerConnection(*parts), client_lost=lambda each: each.detach_session()
    )
    made.application_context, made.connection, made.ws_connection = contexts, None, None
    made._token, made.request = contexts.token, None
    made.write_lock = asyncio.Lock()
    return made


@pytest.mark.parametrize("is_gone", [False, True])
def test_a_socket_ends_after_bokeh_has_detached_it(is_gone):
    """As it does when a ping fails before the end of the connection is heard of."""
    contexts = Contexts()
    socket = socket_of(contexts)
    socket.connection = ServerConnection(Protocol(), socket, contexts, contexts.session)
    socket.application.client_lost(socket.connection)
    contexts.is_gone = is_gone
    socket.on_close()
    assert contexts.session.expiration_requested is not is_gone


def test_a_socket_that_ends_before_it_has_joined_its_session_leaves_it():
    """It would count as an open page until the next ping, half a minute later."""
    contexts = Contexts()
    socket = socket_of(contexts)
    socket.on_close()

    async def send_message(_message) -> None:
        return None

    socket.send_message = send_message
    asyncio.run(socket._async_open(contexts.token))
    assert contexts.session.connection_count == 0
    assert contexts.session.expiration_requested
