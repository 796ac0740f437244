@0xc1a7d5b3e2f40918;
# What a monitor is shown of a cluster: the first frame of a `Snapshot` is a ClusterView, unpacked. Columns are as in
# scaler.capnp, of which this is apart as most programs are never shown one.

struct SchedulerView {
  epoch @0 :UInt64;
  pid @1 :UInt32;
  address @2 :Text;
  version @3 :Text;
  time @4 :Float64;
  uptime @5 :Float64;
  cpu @6 :UInt32;
  memory @7 :UInt64;
  monitors @8 :UInt32;
  bandwidth @9 :UInt64;
  sentTypes @10 :List(Text);
  sentCounts @11 :Data;         # u64
  receivedTypes @12 :List(Text);
  receivedCounts @13 :Data;     # u64
  partner @14 :Text;            # where the other one of a pair of schedulers is; empty for none
  roster @15 :UInt32;           # agents that count, of a pair
  trouble @16 :Text;            # why nothing is handed out, in words; empty if it is, or it stands by for one that is heard
  awaited @17 :Text;            # whose work waits for which agents after the last scheduler, in words; empty if none does
  insecure @18 :Bool;           # without keys: it takes in whoever reaches it
  standsBy @19 :Bool;           # for the other one of a pair, which leads
  silence @20 :Float64;         # seconds for which the other one was not heard; 0 if it is, or there is none
}
struct RowCounts {
  waiting @0 :UInt64;
  queued @1 :UInt64;
  atAgents @2 :UInt64;
  running @3 :UInt64;
  finished @4 :UInt64;
  failed @5 :UInt64;
  cancelled @6 :UInt64;
  claimed @7 :UInt64;
  notFound @8 :UInt64;
  lost @9 :UInt64;
  retried @10 :UInt64;
}
struct AgentColumns {
  numbers @0 :Data;             # u32
  names @1 :List(Text);
  capabilities @2 :List(Text);
  pids @3 :Data;                # u32
  flags @4 :Data;               # u8
  workers @5 :Data;             # u32
  cpus @6 :Data;                # u32
  memory @7 :Data;              # u64
  hostCpus @8 :Data;            # u32
  free @9 :Data;                # u32
  queued @10 :Data;             # u32
  lags @11 :Data;               # u32
  spilled @12 :Data;            # u64
  fetched @13 :Data;            # u64
  stored @14 :Data;             # u64
  rows @15 :Data;               # u32
  silent @16 :Data;             # u32
  reportAges @17 :Data;         # u32
  workerCounts @18 :Data;       # u32
  nameCounts @19 :Data;         # u32
  jobs @20 :List(Text);
  walltimes @21 :Data;          # u32
  idle @22 :Data;               # u32
}
struct ClientColumns {
  numbers @0 :Data;             # u32
  names @1 :List(Text);
  queued @2 :Data;              # u64
  running @3 :Data;             # u64
  done @4 :Data;                # u64
  batches @5 :Data;             # u32
  objects @6 :Data;             # u32
  silent @7 :Data;              # u32
}
struct FunctionColumns {
  clients @0 :Data;             # u32
  names @1 :List(Text);
  waiting @2 :Data;             # u64
  running @3 :Data;             # u64
  done @4 :Data;                # u64
  failed @5 :Data;              # u64
  cancelled @6 :Data;           # u64
  totalUs @7 :Data;             # u64
  p50Us @8 :Data;               # u64
  p95Us @9 :Data;               # u64
}
struct ObjectColumns {
  count @0 :UInt64;
  lookedAt @1 :UInt64;
  stored @2 :UInt64;
  spilled @3 :UInt64;
  fetched @4 :UInt64;
  clients @5 :Data;             # u32
  ids @6 :Data;                 # u64
  sizes @7 :Data;               # u64
  references @8 :Data;          # u32
  copies @9 :Data;              # u32
}
struct DemandColumns {
  capabilities @0 :List(Text);
  queued @1 :Data;              # u64
  workUs @2 :Data;              # u64
  unknown @3 :Data;             # u64
  atAgents @4 :Data;            # u64
  free @5 :Data;                # u64
  hardlyKnown @6 :Data;         # u64
}
struct FleetColumns {
  providers @0 :List(Text);
  desired @1 :Data;             # u32
  pending @2 :Data;             # u32
  running @3 :Data;             # u32
  draining @4 :Data;            # u32
  waited @5 :Data;              # u32
  lineCounts @6 :Data;          # u32
  lines @7 :List(Text);
}
struct ClusterView {
  scheduler @0 :SchedulerView;
  rows @1 :RowCounts;
  agents @2 :AgentColumns;
  clients @3 :ClientColumns;
  functions @4 :FunctionColumns;
  objects @5 :ObjectColumns;
  workerNames @6 :List(Text);
  demand @7 :DemandColumns;
  fleets @8 :FleetColumns;
}
