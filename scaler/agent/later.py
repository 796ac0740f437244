"""The modules that an agent starts without, and may need later."""

#: each behind those that it imports
LATER = (
    "json",
    "scaler.agent.state.validate",
    "bz2",
    "lzma",
    "shutil",
    "random",
    "tempfile",
    "scaler.common.interpreter",
    "scaler.agent.spawned_zygote",
)
#: of one that is no local cluster's: who is connected by a local socket is by tcp if the next scheduler is elsewhere
OF_DAEMONS = ("scaler.transport.zeromq",)
