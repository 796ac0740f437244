"""Hypothesis strategies for well-formed messages of every class."""

from dataclasses import fields, replace
from typing import Any

from hypothesis import strategies as st

from scaler.protocol import messages as m
from scaler.protocol.codes import LARGEST_VALUE, MAX_NUMBER, Leaving, Wish
from scaler.protocol.messages.journals import MAX_OFFSET, MAX_SEGMENT, MAX_TURN
from scaler.protocol.messages.succession import MAX_VERSION

U32, U64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
TEXT = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\0"), max_size=12)
BYTES = st.binary(max_size=40)
#: bytes of a stored object
STORED_BYTES = st.integers(1, LARGEST_VALUE)
SECONDS = st.floats(0, 1e8)
FEW = 5


@st.composite
def pairs(draw: Any, rows: int = 2**20, count: int | None = None) -> Any:
    bounds = []
    for _ in range(draw(st.integers(0, FEW)) if count is None else count):
        lo = draw(st.integers(0, rows - 1))
        bounds += [lo, draw(st.integers(lo + 1, min(rows, lo + 8)))]
    return m.u32(bounds)


@st.composite
def spans(draw: Any, cls: type[m.Spans] = m.Spans) -> m.Spans:
    bounds = draw(pairs())
    n = len(bounds) // 2
    return cls(
        m.u32(draw(st.lists(U32, min_size=n, max_size=n))), m.u64(draw(st.lists(U64, min_size=n, max_size=n))), bounds
    )


@st.composite
def objects(draw: Any, cls: type[m.Objects]) -> m.Objects:
    n = draw(st.integers(0, FEW))
    return cls(m.u32(draw(st.lists(U32, min_size=n, max_size=n))), m.u64(draw(st.lists(U64, min_size=n, max_size=n))))


@st.composite
def balances(draw: Any) -> m.BalanceRequest:
    names = draw(objects(m.Objects))
    return m.BalanceRequest(draw(U32), draw(U32), names.clients, names.ids)


@st.composite
def holders(draw: Any) -> Any:
    """Columns of stored objects: ids, sizes, how many agents have each, and which."""
    ids = draw(st.lists(U64, max_size=FEW))
    n = len(ids)
    counts = draw(st.lists(st.integers(0, 3), min_size=n, max_size=n))
    total = sum(counts)
    return (
        m.u64(ids),
        m.u64(draw(st.lists(STORED_BYTES, min_size=n, max_size=n))),
        m.u32(counts),
        m.u32(draw(st.lists(U32, min_size=total, max_size=total))),
    )


@st.composite
def fetches(draw: Any) -> m.ObjectFetch:
    ids, *rest = draw(holders())
    n = len(ids)
    return m.ObjectFetch(m.u32(draw(st.lists(U32, min_size=n, max_size=n))), ids, *rest)


@st.composite
def responses(draw: Any) -> m.ObjectResponse:
    names = draw(objects(m.Objects))
    n = len(names.ids)
    outcomes = m.u8(draw(st.lists(st.integers(0, 1), min_size=n, max_size=n)))
    return m.ObjectResponse(names.clients, names.ids, outcomes, draw(U32), draw(TEXT))


@st.composite
def neighbours(draw: Any) -> m.Neighbours:
    numbers = draw(st.lists(U32, max_size=FEW))
    return m.Neighbours(m.u32(numbers), tuple(draw(st.lists(TEXT, min_size=len(numbers), max_size=len(numbers)))))


@st.composite
def offers(draw: Any) -> m.StoreOffers:
    numbers = draw(st.lists(U32, max_size=FEW))
    texts = st.lists(TEXT, min_size=len(numbers), max_size=len(numbers)).map(tuple)
    return m.StoreOffers(m.u32(numbers), draw(texts), draw(texts), draw(texts))


@st.composite
def tasks(draw: Any) -> m.Task:
    form, rows = draw(st.integers(0, 2)), draw(st.integers(1, 20))
    bounds = draw(pairs(rows))
    meant = sum(bounds[1::2]) - sum(bounds[::2])
    task = m.Task(
        draw(U32), draw(U64), rows, form, draw(U32), draw(U64), draw(U64), draw(TEXT),
        draw(st.integers(-(2**31), 2**31 - 1)), draw(U32), draw(SECONDS), tuple(draw(st.lists(TEXT, max_size=3))),
        bounds,
    )  # fmt: skip
    if form == m.EACH:
        payloads = draw(st.lists(BYTES, min_size=meant, max_size=meant))
        task.sizes = m.u32(map(len, payloads))
        task.bodies = [b"".join(payloads)]
    if draw(st.booleans()):
        counts = draw(st.lists(st.integers(0, 3), min_size=meant, max_size=meant))
        total = sum(counts)
        task.dependency_counts = m.u32(counts)
        task.dependencies = m.u64(draw(st.lists(U64, min_size=total, max_size=total)))
        if draw(st.booleans()):
            task.indexes = m.i32(draw(st.lists(st.integers(-1, 2**31 - 1), min_size=total, max_size=total)))
    if form == m.GRAPH and draw(st.booleans()):
        task.uses = m.u32(draw(st.lists(U32, min_size=rows, max_size=rows)))
        task.wanted = m.u8(draw(st.lists(st.integers(0, 1), min_size=rows, max_size=rows)))
        task.graph = draw(U64)
    if draw(st.booleans()):
        task.ended, task.root = m.u32([0, 1]), draw(U64)
    if draw(st.booleans()):
        task.stored, task.stored_sizes, task.holder_counts, task.holders = draw(holders())
    others = draw(st.lists(BYTES, max_size=3))
    task.objects = m.u64(draw(st.lists(U64, min_size=len(others), max_size=len(others))))
    task.bodies += others
    return task


@st.composite
def results(draw: Any) -> m.TaskResult:
    message = m.TaskResult(draw(U32))
    is_profiled, body = draw(st.booleans()), b""
    for _ in range(draw(st.integers(0, FEW))):
        outcome = draw(st.sampled_from([*range(m.STORED + 1), m.FILED]))
        batch, lo = draw(U64), draw(st.integers(0, 2**31))
        rows = 1 if outcome in (m.ERROR, m.LOST) else draw(st.integers(1, 4))
        count = m.sizes_of(outcome, rows)
        payload = BYTES if outcome != m.STORED else STORED_BYTES.map(m.SIZE.pack)
        payloads = draw(st.lists(payload, min_size=count, max_size=count))
        if outcome in (m.STORED, m.FILED):  # their values have ids
            batch = min(batch, 2**64 - lo - rows)
        if outcome == m.FILED:
            payloads = [m.FILE.pack(batch + row, *draw(st.tuples(U64, U64, U32))) for row in range(lo, lo + rows)]
        message.batches.append(batch)
        message.spans.extend([lo, lo + rows])
        message.outcomes.append(outcome)
        message.durations.append(draw(U32))
        if is_profiled:
            message.peaks.append(draw(U64))
            message.processor_times.append(draw(U64))
        message.sizes.extend(map(len, payloads))
        body += b"".join(payloads)
    message.bodies = [body]
    return message


@st.composite
def announcements(draw: Any) -> m.ObjectAnnounce:
    kinds = draw(st.lists(st.integers(0, m.STORED_OBJECT), max_size=FEW))
    n = len(kinds)
    ids = m.u64(draw(st.lists(U64, min_size=n, max_size=n)))
    bodies = [m.PLACE.pack(draw(STORED_BYTES), draw(U32)) if kind == m.STORED_OBJECT else draw(BYTES) for kind in kinds]
    return m.ObjectAnnounce(ids, m.u8(kinds), bodies, draw(U32))


@st.composite
def inventories(draw: Any) -> m.Inventory:
    rows, things = draw(spans()), draw(objects(m.Objects))
    clients = sorted({*rows.clients, *things.clients, *draw(st.lists(U32, max_size=2))})
    n, sizes = len(clients), len(things.ids)
    sessions = draw(st.lists(U64, min_size=n, max_size=n))
    held = st.lists(st.just(0) | STORED_BYTES, min_size=sizes, max_size=sizes)
    return m.Inventory(m.u32(clients), m.u64(sessions), rows, things, m.u64(draw(held)))


@st.composite
def worker_columns(draw: Any, names: int = 0, count: int | None = None) -> m.WorkerColumns:
    """Workers that run functions with these numbers of names."""
    n = draw(st.integers(0, FEW)) if count is None else count
    columns = m.WorkerColumns()
    for name in m.COLUMNS:
        column = getattr(columns, name)
        most = names if name == "functions" else (1 << 8 * column.itemsize) - 1
        column.extend(draw(st.lists(st.integers(0, most), min_size=n, max_size=n)))
    return columns


@st.composite
def reports(draw: Any) -> m.HostReport:
    n = draw(st.integers(0, FEW))
    names = tuple(draw(st.lists(TEXT, max_size=n)))
    columns = draw(worker_columns(len(names), n))
    small, large = [draw(U32) for _ in range(5)], [draw(U64) for _ in range(4)]
    cpu, host_cpu, free, queued, running = small
    memory, stored, spilled, fetched = large
    return m.HostReport(
        cpu, memory, host_cpu, free, queued, running, draw(U32), stored, spilled, fetched, n, names, [columns.pack()]
    )


@st.composite
def settled(draw: Any) -> m.Settled:
    clients, over = draw(st.lists(U32, max_size=FEW)), draw(st.lists(U32, max_size=FEW))
    n, batches = len(clients), len(over)
    return m.Settled(
        m.u32(clients), m.u64(draw(st.lists(U64, min_size=n, max_size=n))),
        m.u32(over), m.u64(draw(st.lists(U64, min_size=batches, max_size=batches))),
    )  # fmt: skip


def queries() -> Any:
    states = st.sampled_from(["", "waiting", "queued", "agent", "done", "failed", "cancelled"])
    kinds = st.sampled_from(["tasks", "explain", "story"])
    return st.builds(m.Query, U64, kinds, U32, U64, states, TEXT, st.integers(1, m.MAX_PAGE), U32, U64)


def commands() -> Any:
    texts = st.lists(TEXT, min_size=1, max_size=3).map(tuple)
    name = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\0"), min_size=1, max_size=9)
    cancel = st.builds(m.Command, U64, st.just("cancel"), st.integers(1, MAX_NUMBER - 1), U64, TEXT, st.booleans())
    drain = st.builds(m.Command, U64, st.sampled_from(["drain", "undrain"]), agents=COLUMNS["agents"], jobs=texts)
    fleet = st.builds(
        m.Command, U64, st.just("fleet"), provider=name, desired=U32, pending=U32, running=U32, draining=U32,
        waited=U32, lines=texts,
    )  # fmt: skip
    return cancel | drain | fleet


JOB_NAMES = st.text("ab -ü", min_size=1, max_size=9)


@st.composite
def submissions(draw: Any) -> m.JobSubmit:
    counts = draw(st.lists(st.integers(1, 3), max_size=FEW))
    bodies = draw(st.lists(BYTES, min_size=1 + sum(counts), max_size=1 + sum(counts)))
    return m.JobSubmit(
        draw(U64), draw(JOB_NAMES), draw(JOB_NAMES), draw(U64), draw(JOB_NAMES), draw(st.booleans()),
        draw(st.booleans()), m.u32(counts), bodies,
    )  # fmt: skip


def job_questions() -> Any:
    kinds, waits = st.sampled_from(m.JOB_QUESTIONS), st.floats(0, m.MAX_JOB_WAIT)
    limits = st.integers(1, m.MAX_RESULT_BYTES)
    return st.builds(m.JobQuestion, U64, kinds, JOB_NAMES, U64, limits, waits, st.booleans(), U64)


@st.composite
def job_answers(draw: Any) -> m.JobAnswer:
    answer = m.JobAnswer(draw(U64), draw(TEXT), draw(TEXT), next=draw(U64))
    for outcome in draw(st.lists(st.sampled_from([*range(m.STORED), m.FILED]), max_size=FEW)):
        lo, rows = draw(st.integers(0, 2**40)), draw(st.integers(1, 5))
        answer.rows.extend((lo, lo + rows))
        answer.outcomes.append(outcome)
        answer.durations.append(draw(U32))
        sizes = st.integers(0, 9) if outcome != m.FILED else st.just(m.FILE.size)
        answer.sizes.extend(draw(st.lists(sizes, min_size=(n := m.sizes_of(outcome, rows)), max_size=n)))
    answer.bodies = [bytes(sum(answer.sizes))]
    return answer


@st.composite
def snapshots(draw: Any) -> m.Snapshot:
    return m.Snapshot(draw(U64), [draw(BYTES), draw(BYTES)])


@st.composite
def partner_reports(draw: Any) -> m.PartnerReport:
    changed, leading = draw(st.booleans()), draw(st.booleans())
    sessions = m.u64(draw(st.lists(U64, max_size=FEW)) if changed else ())
    address = draw(st.text(min_size=1, max_size=FEW))
    yields = leading and draw(st.booleans())
    version = draw(st.integers(0, MAX_VERSION - 1))
    return m.PartnerReport(draw(U64), leading, address, version, changed, sessions, yields)


SEGMENT, OFFSET = st.integers(0, MAX_SEGMENT - 1), st.integers(0, MAX_OFFSET - 1)
TURNS = st.lists(st.tuples(st.integers(0, MAX_TURN - 1), U64, SEGMENT, OFFSET), max_size=2).map(
    lambda turns: m.u64([number for turn in turns for number in turn])
)


def journal_messages() -> dict[type[m.Message], Any]:
    slices = st.builds(
        m.JournalSlice, U64, SEGMENT, OFFSET, U64, st.booleans(), st.booleans(),
        st.lists(U32, max_size=FEW).map(m.u32), st.lists(BYTES, min_size=1, max_size=1),
    )  # fmt: skip
    segments = st.lists(U64, max_size=FEW).map(m.u64)
    return {
        m.JournalState: st.builds(
            m.JournalState,
            U64,
            st.sampled_from(list(m.Copying)).map(str),
            SEGMENT,
            OFFSET,
            TURNS,
            st.booleans(),
            segments,
            TEXT,
        ),
        m.JournalStart: st.builds(m.JournalStart, U64, st.booleans(), SEGMENT, OFFSET, TURNS),
        m.JournalSlice: slices,
        m.JournalSynced: st.builds(m.JournalSynced, U64, SEGMENT, OFFSET, U64, st.booleans()),
    }


NUMBERS = {"protocol": st.integers(0, 2**16 - 1), "stream": st.integers(0, 255), "workers": st.integers(0, 100_000)}
NUMBERS["number"] = st.integers(0, MAX_NUMBER - 1)
NUMBERS["leaving"] = st.sampled_from([int(each) for each in Leaving])
NUMBERS["wish"] = st.sampled_from([int(each) for each in Wish])
COLUMNS = {
    "encodings": st.lists(st.integers(0, 255), max_size=3).map(m.u8),
    **dict.fromkeys(("agents", "added", "removed"), st.lists(U32, max_size=3).map(m.u32)),
    "ids": st.lists(U64, max_size=3).map(m.u64),
}
U64_FIELDS = {"taken", "session", "epoch", "received", "limit", "row", "memory", "stored", "walltime", "done", "asked"}


FLOATS = {
    "clock": SECONDS,
    "cpu": st.floats(0, 1),
    "bandwidth": st.floats(0, 1e17),
    **dict.fromkeys(("heartbeat", "timeout"), SECONDS),
}
BY_TYPE = {
    "str": TEXT,
    "bool": st.booleans(),
    "tuple[str, ...]": st.lists(TEXT, max_size=3).map(tuple),
}


def plain(cls: type[m.Message]) -> st.SearchStrategy[m.Message]:
    """Messages whose fields have nothing to do with each other."""
    strategies = {}
    for item in fields(cls):
        kind = item.type if isinstance(item.type, str) else getattr(item.type, "__name__", str(item.type))
        if item.name == "role":
            strategies[item.name] = st.sampled_from(list(m.Role))
        elif item.name == "data":
            strategies[item.name] = st.sampled_from(["", "tcp://host:1", "tcp://[::1]:65535"])
        elif item.name in COLUMNS:
            strategies[item.name] = COLUMNS[item.name]
        elif str(item.type).startswith("tuple"):
            strategies[item.name] = BY_TYPE["tuple[str, ...]"]
        elif kind == "float":
            strategies[item.name] = FLOATS[item.name]
        elif kind == "Spans":
            strategies[item.name] = spans()
        elif kind == "Objects":
            strategies[item.name] = objects(m.Objects)
        else:
            number = NUMBERS.get(item.name, U64 if item.name in U64_FIELDS else U32)
            strategies[item.name] = BY_TYPE.get(kind, number)
    made = st.builds(cls, **strategies)
    return made.flatmap(_with_whereabouts) if "whereabouts" in strategies else made


def _with_whereabouts(message: Any) -> st.SearchStrategy[Any]:
    """The same with where each of its agents is, or none."""
    agents = message.agents if isinstance(message, m.Hello) else message.added
    places = st.lists(TEXT, min_size=len(agents), max_size=len(agents)).map(tuple)
    return st.one_of(st.just(()), places).map(lambda places: replace(message, whereabouts=places))


def strategy_of(cls: type[m.Message]) -> st.SearchStrategy[Any]:
    """Well-formed messages of a class."""
    special = {
        m.Task: tasks(),
        m.TaskResult: results(),
        m.ObjectAnnounce: announcements(),
        m.ObjectFetch: fetches(),
        m.ObjectResponse: responses(),
        m.Neighbours: neighbours(),
        m.BalanceRequest: balances(),
        m.StoreOffers: offers(),
        m.Inventory: inventories(),
        m.Settled: settled(),
        m.HostReport: reports(),
        m.Query: queries(),
        m.Command: commands(),
        m.JobSubmit: submissions(),
        m.JobQuestion: job_questions(),
        m.JobAnswer: job_answers(),
        m.PartnerReport: partner_reports(),
        **journal_messages(),
        m.QueryResult: st.builds(m.QueryResult, U64, U32, U64, TEXT, bodies=st.lists(BYTES, min_size=1, max_size=1)),
        m.Snapshot: snapshots(),
    }
    if cls in special:
        return special[cls]
    if issubclass(cls, m.Spans):
        return spans(cls)
    return objects(cls) if issubclass(cls, m.Objects) else plain(cls)
