@0xc1a7d5b3e2f40917;
# The Scaler protocol, version 1. docs/protocol.md explains it for implementers in other languages.
#
# A message is a list of ZeroMQ frames: this header, then raw payload frames. Columns are packed little-endian arrays:
# u8, u32, u64 or i32 as the comment behind each says. A span is the rows [lo, hi) of a batch; the id of row i is batch + i.

struct Message {
  version @0 :UInt16;   # 1
  seq @1 :UInt64;       # 1, 2, 3 ... within a session; 0 for messages outside the sequence (Hello, Welcome, Refused, Ack)
  ack @2 :UInt64;       # the sender has received everything up to this seq
  union {
    hello @3 :Hello;
    welcome @4 :Welcome;
    refused @5 :Refused;
    acknowledgement @6 :Void;  # carries nothing but the header's `ack`
    task @7 :Task;
    taskResult @8 :TaskResult;
    taskCancel @9 :TaskCancel;
    taskRunning @10 :Spans;
    taskClaim @11 :Spans;
    taskClaimResponse @12 :TaskClaimResponse;
    taskOutput @13 :TaskOutput;
    balanceRequest @14 :BalanceRequest;
    balanceResponse @15 :Spans;
    objectAnnounce @16 :ObjectAnnounce;
    objectRelease @17 :Objects;
    objectRequest @18 :Objects;
    heartbeat @19 :Heartbeat;
    heartbeatEcho @20 :HeartbeatEcho;
    clientDeparture @21 :ClientDeparture;
    disconnectRequest @22 :Void;
    disconnectResponse @23 :Void;
    clientShutdown @24 :Void;
    shutdownResponse @25 :ShutdownResponse;
    clientClear @26 :Void;
    objectGone @27 :ObjectGone;
    objectMissing @28 :ObjectMissing;
    objectFetch @29 :ObjectFetch;
    objectResponse @30 :ObjectResponse;
    neighbours @31 :Neighbours;
    storeRequest @32 :StoreRequest;
    storeOffers @33 :StoreOffers;
    taskBegun @34 :Spans;
    inventory @35 :Inventory;
    clientReturn @36 :ClientReturn;
    clientIntroduction @37 :ClientIntroduction;
    agentsInUse @38 :AgentsInUse;
    settled @39 :Settled;
    watch @40 :Watch;
    hostReport @41 :HostReport;
    snapshot @42 :Snapshot;
    query @43 :Query;
    queryResult @44 :QueryResult;
    command @45 :Command;
    commandResult @46 :CommandResult;
    drain @47 :Drain;
    jobSubmit @48 :JobSubmit;
    jobQuestion @49 :JobQuestion;
    jobAnswer @50 :JobAnswer;
    partnerReport @51 :PartnerReport;
    journalState @52 :JournalState;
    journalStart @53 :JournalStart;
    journalSlice @54 :JournalSlice;
    journalSynced @55 :JournalSynced;
    taskHold @56 :Spans;
  }
}

# What never changes, so that those of different versions can tell each other so: docs/protocol.md, "Other versions".

struct Hello {
  role @0 :Text;            # "client", "agent", "monitor", "store" for an agent without workers beside the scheduler, or
                            # "scheduler" for the other one of a pair
  name @1 :Text;
  session @2 :UInt64;       # random, made by the sender at its start
  protocol @3 :UInt16;
  python @4 :Text;          # "3.11"
  packages @5 :Text;        # "scaler=0.1.0 cloudpickle=3.1.2", of whoever has encodings
  bootId @6 :Text;          # who says the same can read the other's store: boot, /dev/shm and user
  pid @7 :UInt32;
  epoch @8 :UInt64;         # of the scheduler this session was last welcomed by; 0 for none
  received @9 :UInt64;      # highest seq received in this session
  workers @10 :UInt32;      # agents: theirs; clients that come back: of the whole cluster, as last told
  capabilities @11 :List(Text);
  store @12 :Text;          # agents: directory of the store; clients in workers: of that of their agent
  token @13 :Text;          # agents: what the file `token` in it holds; who reads the same is on the same host
  data @14 :Text;           # agents: address where objects are fetched
  encodings @15 :Data;      # u8: how payloads are encoded that it makes and reads; none: it never looks into one
  number @16 :UInt32;       # that the last scheduler gave it; 0 for none
  agents @17 :Data;         # u32: numbers of the agents that may have rows or objects of this client, as last told
  job @18 :Text;            # agents: the batch system's id of the job that they run in
  walltime @19 :UInt64;     # agents: milliseconds until the batch system ends them; 0: it does not
  leaving @20 :UInt8;       # agents: that they are about to go, and why, as in Heartbeat
  others @21 :UInt32;       # at how many other addresses it looks for a scheduler
  roster @22 :UInt32;       # agents: how many agents a pair of schedulers had when it heard last; 0: it was no pair
  whereabouts @23 :List(Text);  # clients: of each of `agents` the address where it listens, and its bootId; or of none
}

struct Welcome {
  epoch @0 :UInt64;         # new at each start of a scheduler
  number @1 :UInt32;        # of this client or agent at this scheduler
  resumed @2 :Bool;         # the session goes on where it was; otherwise the peer introduces itself anew
  received @3 :UInt64;
  workers @4 :UInt32;       # in the whole cluster, now
  protected @5 :Bool;
  heartbeat @6 :Float64;    # seconds between heartbeats
  timeout @7 :Float64;      # seconds of silence after which a peer is given up
  limit @8 :UInt64;         # the largest message, bytes
  roster @9 :UInt32;        # as in HeartbeatEcho
}

struct Refused {
  reason @0 :Text;
  elsewhere @1 :Bool;       # another scheduler leads, or may soon: ask at the other addresses, and here again
  final @2 :Bool;           # to say the same again does not help
}

struct Task {
  client @0 :UInt32;
  batch @1 :UInt64;
  rows @2 :UInt32;          # in the whole batch
  form @3 :UInt8;           # 0 each row has own payload, 1 together in one arguments object, 2 graph
  flags @4 :UInt32;
  function @5 :UInt64;      # object
  arguments @6 :UInt64;     # object, form 1 only
  name @7 :Text;            # of the function, for people
  spans @8 :Data;           # u32 pairs lo, hi: the rows meant
  sizes @9 :Data;           # u32 per row meant, form 0 only; the payloads are in the first frame
  objects @10 :Data;        # u64 ids of the objects in the following frames, a frame each
  options @11 :Options;     # absent: all zero
  needs @12 :Needs;         # absent: no row depends on anything
  places @13 :Places;       # absent: nothing that these rows need is stored
  again @14 :Again;         # absent: all its rows are new
  root @15 :UInt64;         # for which client these rows are run, as a task of it was told; 0: the sender, max: nobody

  struct Options {
    priority @0 :Int32;
    retries @1 :UInt32;
    timeout @2 :Float64;    # seconds a row may run; 0 for no limit
    capabilities @3 :List(Text);
    encoding @4 :UInt8;     # of function, arguments and values: 0 pickle
    threads @5 :UInt32;     # slots of a host that a row takes; 0 for one
    results @6 :Text;       # of durable jobs: what the paths of files begin with that large results go to
    nesting @7 :UInt16;     # tasks, one inside the other, that these rows are submitted in: of one root, deeper ones go first
  }

  struct Needs {
    dependencyCounts @0 :Data;  # u32 per row meant
    dependencies @1 :Data;  # u64 value ids (from clients) or object ids (to agents)
    indexes @2 :Data;       # i32 per dependency, to agents only: element of a list object, or -1
    uses @3 :Data;          # u32 per row, graphs from clients only: how many rows depend on it
    wanted @4 :Data;        # u8 per row of the batch, graphs only: does the client want the value; 2: it alone
    graph @5 :UInt64;       # graphs from clients only: the first row id of the graph, whose own needs `uses` counts
  }

  struct Places {           # to agents only
    stored @0 :Data;        # u64 ids of the stored objects that these rows need
    storedSizes @1 :Data;   # u64 per stored object: 1 to 2^48
    holderCounts @2 :Data;  # u32 per stored object
    holders @3 :Data;       # u32 numbers of the agents that have it
  }

  struct Again {
    ended @0 :Data;         # from clients that return, only; u32 pairs lo, hi, ascending: rows that have ended for their client
    lost @1 :Data;          # to agents only; u32 pairs lo, hi: of the rows meant, those that were lost with a worker before
  }
}

struct TaskResult {
  client @0 :UInt32;
  batches @1 :Data;         # u64 per span
  spans @2 :Data;           # u32 pairs lo, hi
  outcomes @3 :Data;        # u8 per span: 0 list, 1 each, 2 error, 3 cancelled, 4 lost, 5 stored,
                            # 8 in a file
  durations @4 :Data;       # u32 microseconds per span, all its rows together
  profile @5 :Profile;      # absent when no span is profiled
  sizes @6 :Data;           # u32: one for a list, an error or a loss, one per row for each, stored and in a file, none for cancelled; payloads in the first frame,
                            # of a stored value its size as u64, 1 to 2^48, of one in a file row id u64, tag u64, size u64, crc32 u32

  struct Profile {
    peaks @0 :Data;           # u64 bytes of memory per span, 0 when not profiled
    processorTimes @1 :Data;  # u64 microseconds of processor per span, 0 when not profiled
  }
}

struct Spans { clients @0 :Data; batches @1 :Data; spans @2 :Data; }   # u32, u64, u32 pairs
struct TaskCancel { spans @0 :Spans; force @1 :Bool; }
struct TaskClaimResponse { granted @0 :Spans; refused @1 :Spans; }
struct TaskOutput { client @0 :UInt32; row @1 :UInt64; name @2 :Text; stream @3 :UInt8; text @4 :Text; }
struct BalanceRequest { rows @0 :UInt32; threads @1 :UInt32; clients @2 :Data; batches @3 :Data; }  # 0 for rows that take one slot; u32, u64
struct ObjectAnnounce { ids @0 :Data; kinds @1 :Data; client @2 :UInt32; }
# u64, u8: a frame each follows: 0 payload, 1 error record, 2 stored: u64 size, 1 to 2^48, u32 number of the agent that has it
struct Objects { clients @0 :Data; ids @1 :Data; }                     # u32, u64
struct ObjectGone { clients @0 :Data; ids @1 :Data; withWorker @2 :Bool; }  # u32, u64
struct ObjectMissing { objects @0 :Objects; rows @1 :Spans; refusal @2 :Text; unfit @3 :Bool; }
struct ObjectFetch { clients @0 :Data; ids @1 :Data; sizes @2 :Data; holderCounts @3 :Data; holders @4 :Data; }  # u32, u64, u64, u32, u32
struct ObjectResponse { clients @0 :Data; ids @1 :Data; outcomes @2 :Data; agent @3 :UInt32; reason @4 :Text; }  # u32, u64, u8: 0 there, 1 not
struct Neighbours { numbers @0 :Data; addresses @1 :List(Text); }      # u32
struct StoreRequest { standalone @0 :Bool; }
struct StoreOffers { agents @0 :Data; paths @1 :List(Text); tokens @2 :List(Text); addresses @3 :List(Text); }  # u32
struct Heartbeat {
  clock @0 :Float64;
  workers @1 :UInt32;
  queued @2 :UInt32;
  running @3 :UInt32;
  cpu @4 :Float64;          # part of the host's processors that is in use, 0 to 1
  memory @5 :UInt64;
  stored @6 :UInt64;        # bytes of objects
  full @7 :Bool;            # no room for more: give it no new work
  bandwidth @8 :Float64;    # bytes a second by which objects come from other hosts; 0 while unknown
  leaving @9 :UInt8;        # agents: 0 it stays, otherwise why it goes: 1 told to, 2 its end was announced, 3 walltime
}
struct HeartbeatEcho {
  clock @0 :Float64;
  workers @1 :UInt32;
  roster @2 :UInt32;        # how many agents both of a pair of schedulers count; 0: this one has no standby
}
struct ClientIntroduction { client @0 :UInt32; session @1 :UInt64; }
struct AgentsInUse { added @0 :Data; removed @1 :Data; whereabouts @2 :List(Text); }  # u32; of those that are added, as in Hello
struct Inventory {          # the first message of an agent that returns to another scheduler
  clients @0 :Data;         # u32 numbers at the last scheduler, of those that it has something of
  sessions @1 :Data;        # u64 the session of each
  rows @2 :Spans;           # that it has, or has ended and says again how
  objects @3 :Objects;      # that its store has
  sizes @4 :Data;           # u64 bytes of each, 1 to 2^48; 0: it came in a message
}
struct ClientReturn { ids @0 :Data; }                                  # u64: stored values of its rows that it refers to
struct Settled {            # what an agent need not be able to say again
  clients @0 :Data;         # u32
  results @1 :Data;         # u64 how many TaskResults of each it has said whose consequences have reached the client
  overClients @2 :Data;     # u32 of batches that are over, and with them all that was kept of their rows
  overBatches @3 :Data;     # u64
}
struct Drain { wish @0 :UInt8; }                                       # to agents: 0 stay, 1 drain, 2 nothing is left to do: end, 3 farewell
struct ClientDeparture { client @0 :UInt32; stays @1 :Bool; }
struct ShutdownResponse { accepted @0 :Bool; reason @1 :Text; }

# ---- monitors ----------------------------------------------------------------------------------------------------------
# what each field is: scaler/protocol/messages/watching.py and cluster_view.py, and docs/protocol.md
struct Watch { interval @0 :UInt32; taken @1 :UInt64; }   # milliseconds, 0 for never; number of the last Snapshot
struct Query {              # a question of a monitor; "output" goes on to an agent
  number @0 :UInt64;        # the answer has it, too
  kind @1 :Text;            # "tasks", "explain", "story" or "output"
  client @2 :UInt32;        # whose; 0 for anybody's
  row @3 :UInt64;           # id, if it is about one row
  state @4 :Text;           # "waiting", "queued", "agent", "done", "failed", "cancelled"; empty for any
  name @5 :Text;            # of the function; empty for any
  limit @6 :UInt32;         # lines of the answer, at most
  fromClient @7 :UInt32;    # where the page begins
  fromRow @8 :UInt64;
  agent @9 :UInt32;         # output: of which agent's worker, and which slot that has
  slot @10 :UInt32;
}
struct QueryResult {        # of the scheduler, and of an agent to it; a frame: lines of JSON, UTF-8
  number @0 :UInt64;
  nextClient @1 :UInt32;    # where the next page begins; 0 and 0: this was the last
  nextRow @2 :UInt64;
  error @3 :Text;           # why there is no answer; empty if there is
}
struct JobSubmit {          # frames: a note, then those of the messages
  number @0 :UInt64;
  name @1 :Text;
  owner @2 :Text;
  token @3 :UInt64;
  key @4 :Text;
  joins @5 :Bool;
  isLast @6 :Bool;
  counts @7 :Data;              # u32
}
struct JobQuestion {
  number @0 :UInt64;
  kind @1 :Text;                # list, state, note, ordered, finished, file, cancel or delete
  name @2 :Text;
  position @3 :UInt64;
  limit @4 :UInt32;
  wait @5 :Float64;             # seconds
  force @6 :Bool;
  offset @7 :UInt64;            # of a file: where to begin
  token @8 :UInt64;             # of the job that is meant; 0: the one that has the name
}
struct JobAnswer {          # a frame: payloads of rows, a note, or bytes of a file
  number @0 :UInt64;
  error @1 :Text;
  text @2 :Text;                # lines of JSON
  rows @3 :Data;                # u64, pairs
  outcomes @4 :Data;            # u8
  durations @5 :Data;           # u32
  sizes @6 :Data;               # u32
  next @7 :UInt64;
  token @8 :UInt64;             # of the job that it is about; 0: of none, or of all
}
struct PartnerReport {      # what one of a pair of schedulers tells the other, twice a second
  epoch @0 :UInt64;         # its own if it leads, else the highest that it has heard of
  leading @1 :Bool;
  address @2 :Text;         # where it listens
  version @3 :UInt64;       # of the roster that it has; 0 for none
  changed @4 :Bool;         # the roster is in this report
  roster @5 :Data;          # u64: sessions of the agents that count
  yields @6 :Bool;          # it leads, and asks the other to lead from now on
}
struct JournalState {       # which copy of a journal one of a pair of schedulers has
  stream @0 :UInt64;        # drawn by the one that leads each time that it says this; all that follows has it
  copying @1 :Text;         # "leads"; or of the other "own", "shared" (the same directory) or "none"
  segment @2 :UInt64;       # where what can be believed ends
  offset @3 :UInt64;
  turns @4 :Data;           # u64, four of each turn: number, lot, segment and offset of its start
  alone @5 :Bool;           # something may have been acknowledged that no other copy has
  segments @6 :Data;        # u64: those that are there, ascending
  trouble @7 :Text;         # why there is no copy
}
struct JournalStart {       # what comes next of a stream
  stream @0 :UInt64;
  whole @1 :Bool;           # the copy that is there is to be replaced
  segment @2 :UInt64;       # where both part
  offset @3 :UInt64;
  turns @4 :Data;           # u64
}
struct JournalSlice {       # a frame: bytes of a segment
  stream @0 :UInt64;
  segment @1 :UInt64;
  offset @2 :UInt64;
  echo @3 :UInt64;          # the last number of a JournalSynced that was heard in time
  inStep @4 :Bool;          # whatever was acknowledged is in the copy
  complete @5 :Bool;        # with these bytes a whole copy is complete
  removed @6 :Data;         # u32: segments that are not needed any more
}
struct JournalSynced {      # how far the copy is on disk
  stream @0 :UInt64;
  segment @1 :UInt64;
  offset @2 :UInt64;
  number @3 :UInt64;        # counts these
  complete @4 :Bool;        # it takes the place of the old one
}
struct Command {            # what somebody wants done
  number @0 :UInt64;        # the answer has it, too
  kind @1 :Text;            # "cancel", "drain", "undrain", "fleet", "promote" or "hand-over"
  client @2 :UInt32;        # whose rows; 0 for anybody's
  row @3 :UInt64;           # id; 0 for no row in particular
  name @4 :Text;            # of the function; empty for any
  force @5 :Bool;           # even those that run
  agents @6 :Data;          # u32
  jobs @7 :List(Text);      # agents by the job that they run in
  fleet @8 :Fleet;          # of kind "fleet" only

  struct Fleet {            # what somebody knows who asks a batch system for hosts
    provider @0 :Text;
    desired @1 :UInt32;
    pending @2 :UInt32;
    running @3 :UInt32;
    draining @4 :UInt32;
    waited @5 :UInt32;      # milliseconds that the oldest of those pending has waited
    lines @6 :List(Text);   # the batch system's own words
  }
}
struct CommandResult {
  number @0 :UInt64;
  done @1 :UInt64;          # rows cancelled, agents that will go or stay
  asked @2 :UInt64;         # rows that agents were asked for: those that have begun go on
  error @3 :Text;           # why nothing was done; empty if it was
}
struct Snapshot { number @0 :UInt64; }                    # frames: a ClusterView, unpacked; the columns of workers
struct HostReport {
  cpu @0 :UInt32;
  memory @1 :UInt64;
  hostCpu @2 :UInt32;
  free @3 :UInt32;
  queued @4 :UInt32;
  running @5 :UInt32;
  lag @6 :UInt32;
  stored @7 :UInt64;
  spilled @8 :UInt64;
  fetched @9 :UInt64;
  workers @10 :UInt32;
  names @11 :List(Text);
}
