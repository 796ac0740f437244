"""What a client's cluster can be asked: `client.cluster.status()`, `.workers()`, `.tasks()`, `.explain(future)` ...

Each call is a short session of its own with the scheduler, beside the client's: it disturbs nothing that the client has
under way, and any thread may make it. Nothing of this is loaded before the first call.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from scaler.client.future import Future
from scaler.client.liveness import Liveness
from scaler.client.waiting.owner import ClientOwner
from scaler.transport import Address, Security

if TYPE_CHECKING:
    from scaler.monitor.questions import Questions

Record = dict[str, Any]


class ClusterQuestions:
    """The cluster of a client, to be asked what it does; answers are plain dicts, as `scaler ... --json` prints them.

    All methods may be called from any thread, and inside tasks, and block until the scheduler has answered, at most
    5 s: a question about tasks takes a few milliseconds, the others up to a second, as agents are asked first how they
    are. They raise `ConnectionFailed`, `ConnectionTimeout`, `HandshakeRefused`, and `ClientClosed` if the client is.
    """

    def __init__(self, address: Address, security: Security, liveness: Liveness) -> None:
        """Made by clients only."""
        self._address = address
        self._security = security
        self._liveness = liveness

    def status(self) -> Record:
        """The scheduler, how many agents, workers and clients there are, tasks by state, bytes in stores."""
        with self._questions() as questions:
            return questions.status()

    def agents(self, *, host: str = "", find: str = "", sort: str = "", limit: int | None = None) -> list[Record]:
        """A record for each agent: one for each host. `find`: a part of a name; `sort`: a column of `scaler agents`."""
        return self._listed("agents", host=host, find=find, sort=sort, limit=limit)

    def workers(
        self,
        *,
        host: str = "",
        function: str = "",
        client: int = 0,
        find: str = "",
        sort: str = "",
        limit: int | None = None,
    ) -> list[Record]:
        """A record for each worker, with what it runs; of one host, of one function, of the client of this number."""
        return self._listed(
            "workers", host=host, function=function, client=client, find=find, sort=sort, limit=limit
        )  # fmt: skip

    def clients(self, *, client: int = 0, find: str = "", sort: str = "", limit: int | None = None) -> list[Record]:
        """A record for each client, or for the one of this number."""
        return self._listed("clients", client=client, find=find, sort=sort, limit=limit)

    def functions(
        self, *, function: str = "", client: int = 0, find: str = "", sort: str = "", limit: int | None = None
    ) -> list[Record]:
        """A record for each function of each client: its rows by state, and how long they take."""
        return self._listed("functions", function=function, client=client, find=find, sort=sort, limit=limit)

    def objects(self, *, client: int = 0, find: str = "", sort: str = "", limit: int | None = None) -> list[Record]:
        """A record for each of the largest objects, among those that came last."""
        return self._listed("objects", client=client, find=find, sort=sort, limit=limit)

    def tasks(
        self, *, state: str = "", function: str = "", client: int = 0, limit: int | None = 1_000
    ) -> Iterator[Record]:
        """Tasks that have not ended, or others of whose batch have not, page by page as they are read.

        `state`: waiting, queued, agent, done, failed, cancelled, or empty for any. It ends after `limit` of
        them, without a word; with None there are all, however many. The session lasts until the last one is read or the
        iterator is closed; one thread at a time may read it.
        """
        if limit is not None and limit < 0:
            raise ValueError(f"limit has to be a number of tasks, not {limit}")
        with self._questions() as questions:
            yield from questions.tasks(state, function, client, limit)

    def explain(self, task: Any) -> Record:
        """Why a task has not run, or where it runs: `reason` and, in words, `lines`.

        `task`: a future of this client, of an `Executor` or of scaler_dask's client, or a name such as "412001:290".
        Raises `UnknownTask` if the scheduler knows it no more, and ValueError for a future that stands for no task, and
        for a name that tasks of several clients have.
        """
        name = self._name_of(task)
        with self._questions() as questions:
            return _only(name, questions.explain(name))

    def story(self, task: Any) -> Record:
        """What has happened to a task, in `lines`, as far as the scheduler remembers. Takes and raises as `explain`."""
        name = self._name_of(task)
        with self._questions() as questions:
            return _only(name, questions.story(name))

    def _listed(self, kind: str, **filters: Any) -> list[Record]:
        from scaler.monitor.listing import Filters

        with self._questions() as questions:
            said = {name: value for name, value in filters.items() if value is not None}
            return questions.listed(kind, Filters(**said)).records

    def _questions(self) -> Questions:
        from scaler.monitor.questions import Questions

        self._liveness.check()
        return Questions(self._address.url, security=self._security)

    def _name_of(self, task: Any) -> str:
        """What the scheduler calls a task."""
        if isinstance(task, str):
            return task
        future = getattr(task, "engine_future", task)  # adapters' futures say which of ours they stand on
        if isinstance(future, Future) and isinstance(future.owner, ClientOwner):
            return future.owner.task_name(future)
        if future is None:
            raise ValueError(f"{task!r} stands for no task of the cluster")
        raise TypeError(f"{task!r} is no future of a task, and no name of one such as '412001:290'")


def _only(name: str, found: list[Record]) -> Record:
    """The one task of a name."""
    if len(found) > 1:
        raise ValueError(f"{name!r} names several tasks: say which of {', '.join(each['task'] for each in found)}")
    return found[0]
