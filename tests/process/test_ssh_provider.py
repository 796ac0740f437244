"""Hosts by ssh, with a command `ssh` that runs what it is given on this machine."""

import contextlib
import json
import os
import signal
import stat
import sys
from pathlib import Path

import pytest
from support import until

from scaler.common import start_environment
from scaler.config import OptionError
from scaler.provisioning import ssh
from scaler.provisioning.provider import HostTemplate, JobState, ProviderError
from scaler.provisioning.registry import make_provider

#: takes ssh's options, knows hosts that are called alpha1, alpha2, ..., and goes on as sshd would
SSH = """\
#!/bin/sh
while getopts To:l:p:i:V option; do
    [ $option = V ] && { echo "OpenSSH_9.9, of tests" >&2; exit 0; }
    [ $option = l ] && export LOGNAME=$OPTARG
done
shift $((OPTIND - 1))
case $1 in
    hung*) exec sleep 1000;;
    quits*) exit 0;;
    reads*) read line; exec sh -c "$2";;
    bites*) head -c 9 >/dev/null; exec sh -c "$2";;
    alpha*) echo "Welcome to $1"; FAR_HOST=$1 exec sh -c "$2";;
    *) echo "ssh: connect to host $1 port 22: No route to host" >&2; exit 255;;
esac
"""

AGENT = f"""\
#!{sys.executable}
import json, os, signal, sys, time
key = os.environ.get("SCALER_KEY_FILE", "")
here = os.path.dirname(os.path.abspath(__file__))
told = dict(argv=sys.argv[1:], key=open(key).read(), mode=os.stat(key).st_mode, path=key, pid=os.getpid(),
            said=os.environ["SAID"], user=os.environ.get("LOGNAME"), environ=dict(os.environ))
path = os.path.join(here, "up-" + os.environ["FAR_HOST"])
with open(path + ".new", "w") as file:
    json.dump(told, file)
os.rename(path + ".new", path)
if os.environ["SAID"] == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.pause()
time.sleep(100)
"""


@pytest.fixture
def far(tmp_path, monkeypatch, traces):
    """A directory with the commands, and for temporary files of the far side."""
    for name, text in (("ssh", SSH), ("scaler_cluster", AGENT)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "tmp").mkdir()
    (tmp_path / "key").write_text("secret of the cluster")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    return tmp_path


@pytest.fixture
def provider_with(far):
    """Makes a provider, whose jobs end with the test."""
    with contextlib.ExitStack() as stack:

        def made(*hosts, **options):
            provider = make_provider("ssh", {"hosts": list(hosts), "python": sys.executable, **options})
            return stack.enter_context(contextlib.closing(provider))

        yield made


def template(far, said="hello", request=1):
    environment = {"SCALER_KEY_FILE": str(far / "key"), "SAID": said}
    command = (str(far / "scaler_cluster"), "tcp://head:2345")
    return HostTemplate("lab", request, command, environment=environment)


def up(far):
    return [json.loads(path.read_text()) for path in sorted(far.glob("up-alpha?"))]


def is_gone(pid):
    return not Path(f"/proc/{pid}").exists()


def test_agents_run_with_the_key_and_leave_nothing_behind(far, provider_with):
    provider = provider_with("alpha1", "alpha2", "beta", user="me")
    assert provider.describe() == "OpenSSH_9.9, 3 hosts"
    ids = provider.submit(3, template(far))
    assert [name.partition("#")[0] for name in ids] == ["alpha1", "alpha2", "beta"]
    agents = until(lambda: len(found := up(far)) == 2 and found)
    for agent, name in zip(agents, ids, strict=False):
        assert agent["argv"] == ["tcp://head:2345", "--job", name]
        assert (agent["key"], agent["said"], agent["user"]) == ("secret of the cluster", "hello", "me")
        assert stat.S_IMODE(agent["mode"]) == 0o600
        assert Path(agent["path"]).parent.parent == far / "tmp"
    jobs = until(
        lambda: (
            {job.host: job for job in provider.list("lab")}
            if sum(job.state is JobState.RUNNING for job in provider.list("lab")) == 2
            and sum(job.state is JobState.ENDED for job in provider.list("lab")) == 1
            else None
        )
    )
    assert jobs["beta"].reason == "ssh: connect to host beta port 22: No route to host"
    assert provider.list("other") == []
    with pytest.raises(ProviderError, match=r"no host is free: 2 of 3 are in use, .* lately: beta"):
        provider.submit(1, template(far, request=2))
    provider.cancel([ids[0], "unknown"])
    until(lambda: is_gone(agents[0]["pid"]))
    until(lambda: [job.state for job in provider.list("lab") if job.id == ids[0]] == [JobState.ENDED])
    assert [job.reason for job in provider.list("lab") if job.id == ids[0]] == [""]
    provider.close()
    assert is_gone(agents[1]["pid"])
    assert list((far / "tmp").iterdir()) == []


def test_agents_have_the_variables_at_once_that_they_would_begin_again_for(far, provider_with, monkeypatch):
    for name in ("GLIBC_TUNABLES", "PYTHONHASHSEED"):
        monkeypatch.delenv(name, raising=False)
    provider = provider_with("alpha1", "alpha2")
    provider.submit(1, template(far))
    (agent,) = until(lambda: up(far))
    assert start_environment.environment(agent["environ"]) == {}
    monkeypatch.setenv("GLIBC_TUNABLES", "of=the.host")
    provider.submit(1, template(far, request=2))
    until(lambda: len(up(far)) == 2)
    assert up(far)[1]["environ"]["GLIBC_TUNABLES"] == "of=the.host"


def test_agents_end_when_the_starting_program_is_killed(far, scripts):
    # one that does not listen to SIGTERM is killed
    program = scripts.start(
        f"""
        import sys
        from scaler.provisioning.provider import HostTemplate
        from scaler.provisioning.registry import make_provider
        provider = make_provider("ssh", dict(hosts=["alpha1"], python=sys.executable, grace=0.1))
        environment = dict(SCALER_KEY_FILE={str(far / "key")!r}, SAID="deaf")
        provider.submit(1, HostTemplate("lab", 1, ({str(far / "scaler_cluster")!r}, "x"), environment=environment))
        sys.stdin.close()
        import time
        time.sleep(100)
        """
    )
    (agent,) = until(lambda: up(far))
    program.signal(signal.SIGKILL)
    until(lambda: is_gone(agent["pid"]))
    until(lambda: list((far / "tmp").iterdir()) == [])


def test_the_far_side_says_what_is_missing(far, provider_with):
    provider = provider_with("alpha1", "alpha2", python="/no/python")
    provider.submit(1, template(far))
    (job,) = until(lambda: [job for job in provider.list("lab") if job.state is JobState.ENDED])
    assert "/no/python" in job.reason
    there = provider_with("alpha1")
    there.submit(1, HostTemplate("lab", 1, ("/no/scaler_nothing", "tcp://head:2345")))
    (job,) = until(lambda: [job for job in there.list("lab") if job.state is JobState.ENDED])
    assert job.reason.startswith("there is no scaler_nothing on ")


@pytest.mark.parametrize(
    ("host", "words"),
    [
        ("quits1", "its login script ends before Python begins: a line like `exit`, say in ~/.bashrc (exit code 0)"),
        ("reads1", ssh.EATEN),
        ("bites1", ssh.EATEN + " (SyntaxError: "),
    ],
)
def test_a_login_script_that_ends_or_reads_what_is_not_its_own_is_a_failure_with_its_reason(
    far, provider_with, host, words
):
    provider = provider_with(host)
    provider.submit(1, template(far))
    (job,) = until(lambda: [job for job in provider.list("lab") if job.state is JobState.ENDED])
    assert job.reason.startswith(words)
    with pytest.raises(ProviderError, match=f"no host is free: 0 of 1 are in use, .* lately: {host}"):
        provider.submit(1, template(far, request=2))


def test_a_host_whose_login_hangs_is_given_up_and_does_not_hold_up_others(far, provider_with, monkeypatch):
    monkeypatch.setattr(ssh, "START", 0.1)
    hosts = ["hung1", "alpha1"]
    provider = provider_with(*hosts, connect_timeout=1, parallel=1)
    provider.submit(2, template(far))
    (job,) = until(lambda: [job for job in provider.list("lab") if job.state is JobState.ENDED])
    assert job.host == "hung1"
    assert job.reason == "nothing began there within 1.1 s: its login shell, or a file system, may hang, " + (
        "or a login script reads standard input"
    )
    until(lambda: up(far))
    with pytest.raises(ProviderError, match=r"no host is free: 1 of 2 are in use, and could not be reached .*: hung1"):
        provider.submit(1, template(far))
    monkeypatch.setattr(ssh, "REST", 0.0)
    provider.submit(1, template(far, request=2))
    until(lambda: not [job for job in provider.list("lab") if job.host == "hung1" and job.state is JobState.PENDING])
    monkeypatch.undo()  # the second failure in a row
    rests = {host: ssh._again_at(0.0, times) for host, (_, times) in provider._failed.items()}
    assert rests == {"hung1": 60.0}


def test_a_host_whose_login_hangs_is_let_go_as_soon_as_nobody_wants_it(far, provider_with, monkeypatch):
    monkeypatch.setattr(ssh, "UNBEGUN", 0.1)
    provider = provider_with("hung1", grace=1000)
    for request in (1, 2):  # it has not failed, and is free again
        (name,) = provider.submit(1, template(far, request=request))
        until(lambda name=name: provider._jobs[name].process)
        provider.cancel([name])
        until(lambda: [job.state for job in provider.list("lab")] == [JobState.ENDED] * len(provider.list("lab")))


def test_an_agent_whose_words_cannot_be_kept_is_ended(far, provider_with, tmp_path):
    log = tmp_path / "logs" / "agents"
    log.parent.mkdir()
    provider = provider_with("alpha1", log=str(log))
    log.unlink()
    log.parent.rmdir()
    provider.submit(1, template(far))
    (job,) = until(lambda: [job for job in provider.list("lab") if job.state is JobState.ENDED])
    assert "No such file or directory" in job.reason
    until(lambda: [told for told in up(far) if is_gone(told["pid"])] == up(far))
    until(lambda: list((far / "tmp").iterdir()) == [])


def test_a_host_that_no_thread_can_be_had_for_is_free_again(far, provider_with, monkeypatch):
    def refusing(*arguments):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(ssh.threading, "Timer", refusing)
        provider = provider_with("alpha1", grace=0.1)
        provider.submit(1, template(far))
        (job,) = until(lambda: [job for job in provider.list("lab") if job.state is JobState.ENDED])
    assert job.reason == "can't start new thread"
    monkeypatch.setattr(ssh, "REST", 0.0)
    assert provider.submit(1, template(far, request=2)) == ["alpha1#2"]


def test_an_agent_that_ends_at_once_is_told_in_its_words_and_left_alone_for_longer_each_time(
    far, provider_with, monkeypatch
):
    (far / "scaler_cluster").write_text("#!/bin/sh\necho began\necho 'preload failed: no module x' >&2\nexit 1\n")
    provider = provider_with("alpha1")
    for request in (1, 2):
        with monkeypatch.context() as patch:
            patch.setattr(ssh, "REST", 0.0)
            provider.submit(1, template(far, request=request))
        until(lambda: all(job.state is JobState.ENDED for job in provider.list("lab")))
        assert provider.list("lab")[-1].reason == "preload failed: no module x"
        assert provider._failed["alpha1"][1] == request
        with pytest.raises(ProviderError, match=r"no host is free: 0 of 1 are in use, .* lately: alpha1"):
            provider.submit(1, template(far, request=9))


def test_an_agent_that_is_no_program_is_told_of(far, provider_with):
    (far / "scaler_cluster").write_text("no program\n")
    provider = provider_with("alpha1")
    provider.submit(1, template(far))
    (job,) = until(lambda: [job for job in provider.list("lab") if job.state is JobState.ENDED])
    assert job.reason.endswith("/scaler_cluster can't be run: Exec format error")


def test_hosts_that_were_killed_there_are_cleaned_up_later(far, provider_with):
    host = os.uname().nodename
    left = far / "tmp" / f"scaler-ssh-999999999-{host}-x"
    left.mkdir()
    others = [f"{os.getpid()}-{host}-y", f"999999999-{host}-2-y", "999999999-another-y"]  # such as share the directory
    for name in others:
        (far / "tmp" / f"scaler-ssh-{name}").mkdir()
    provider = provider_with("alpha1")
    provider.submit(1, template(far))
    until(lambda: up(far))
    assert not left.exists()
    assert all((far / "tmp" / f"scaler-ssh-{name}").exists() for name in others)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "hosts has to name hosts"),
        ({"hosts": ["-oProxyCommand=x"]}, "would take for an option"),
        ({"hosts": ["a", ""]}, "has an empty name"),
        ({"hosts": ["a"], "ssh_options": [22]}, r"ssh_options must be a list of texts, not \[22\]"),
        ({"hosts_file": "/no/file"}, "hosts_file cannot be read"),
        ({"hosts_file": sys.executable}, "hosts_file cannot be read: .*decode"),
        ({"host": ["x"]}, "is no option of the provider 'ssh'"),
        ({"hosts": ["x"], "parallel": 0}, "parallel must be at least 1, not 0"),
        ({"hosts": ["x"], "log": "/no/log"}, "log cannot be written"),
    ],
)
def test_options_that_do_not_do(options, words):
    with pytest.raises(OptionError, match=words):
        make_provider("ssh", options)


def test_the_user_s_own_options_of_ssh_come_first():
    provider = make_provider("ssh", {"hosts": ["a"], "ssh_options": ["ProxyJump=gate"], "port": 2222, "identity": "k"})
    assert provider.command("a")[:6] == ["ssh", "-T", "-o", "ProxyJump=gate", "-o", "BatchMode=yes"]
    assert provider.command("a")[-6:-1] == ["-p", "2222", "-i", "k", "a"]
    text = provider.preview(1, HostTemplate("lab", 1, ("scaler_cluster", "tcp://head:2345")))
    assert "scaler_cluster tcp://head:2345 --job" in text
