"""The provisioning core, one situation at a time; the simulator has the rest. And how providers are found."""

import pytest

from scaler.common import start_environment
from scaler.config import OptionError, ProvisionConfig
from scaler.provisioning import slurm
from scaler.provisioning.asking import job_environment, limits_of, template_of
from scaler.provisioning.core import FleetCore, Limits
from scaler.provisioning.core import events as ev
from scaler.provisioning.provider import HostTemplate, Job, JobState, ProviderError, WrongRequest
from scaler.provisioning.registry import UnknownProvider, make_provider, names
from scaler.transport import Security

PLAIN = frozenset()


class Fleet:
    """A core, and what it is told."""

    def __init__(self, is_new=True, **limits):
        self.now = 0.0
        self.core = FleetCore(Limits(**limits), 0.0, is_new)
        self.agents = {}
        self.jobs = {}
        self.asked = ()

    def step(self, *events, seconds=1.0):
        """A second goes by, with a look at the cluster and a list of jobs."""
        self.now += seconds
        listed = ev.Listed(tuple(Job(each, f"x-{n}", state) for each, (n, state) in self.jobs.items()), self.now)
        seen = ev.Observed(tuple(self.agents.values()), self.asked)
        return self.core.handle([*events, listed, seen], self.now)

    def queue(self, rows, seconds=60.0, capabilities=PLAIN):
        """So many rows are queued, each taking so long."""
        self.asked = (ev.Asked(capabilities, rows, rows * seconds, 0, 0),)

    def come(self, effects):
        """Every host that was asked for is there at once."""
        (submit,) = [effect for effect in effects if isinstance(effect, ev.Submit)]
        ids = tuple(f"{submit.request}_{n}" for n in range(submit.n))
        self.jobs |= dict.fromkeys(ids, (submit.request, JobState.RUNNING))
        self.agents |= {each: ev.Agent(each, 1, 0, 0.5) for each in ids}
        return self.step(ev.Submitted(submit.request, ids))

    def idle(self, seconds):
        """All agents have had nothing to do for so long."""
        self.agents = {each: ev.Agent(each, 1, 0, seconds) for each in self.agents}


def test_as_many_hosts_as_the_queue_needs_and_not_more_than_the_maximum():
    fleet = Fleet(maximum=5, drain_time=60.0)
    fleet.queue(3)
    assert fleet.step() == [ev.Submit(1, 3)]
    fleet.queue(30)
    assert fleet.step(ev.Submitted(1, ("1_0", "1_1", "1_2"))) == [ev.Submit(2, 2)]
    assert fleet.core.wanted == 5


def test_rows_of_unknown_duration_count_as_the_guess():
    fleet = Fleet(maximum=100, drain_time=10.0, guess=2.0)
    fleet.asked = (ev.Asked(PLAIN, 50, 0.0, 50, 0),)
    assert fleet.step() == [ev.Submit(1, 10)]


def test_hosts_are_for_rows_that_they_can_run():
    fleet = Fleet(capabilities=frozenset({"gpu"}), exclusive=True)
    fleet.queue(5)
    assert fleet.step() == []
    fleet.queue(5, capabilities=frozenset({"gpu", "big"}))
    assert fleet.step() == []
    fleet.queue(5, capabilities=frozenset({"gpu"}))
    assert fleet.step() == [ev.Submit(1, 5)]


def test_hosts_of_others_are_counted_and_left_alone():
    fleet = Fleet(minimum=0, idle_time=1.0)
    fleet.agents = {"": ev.Agent("", 4, 0, 1000.0)}
    fleet.queue(4)
    assert fleet.step() == []
    fleet.queue(6)
    assert fleet.step() == [ev.Submit(1, 2)]
    fleet.queue(0)
    assert all(not isinstance(effect, ev.Drain) for n in range(5) for effect in fleet.step())


def test_idle_hosts_go_after_a_while_and_not_those_that_work():
    fleet = Fleet(idle_time=10.0)
    fleet.queue(3)
    fleet.come(fleet.step())
    fleet.queue(0)
    fleet.idle(11.0)
    fleet.agents["1_1"] = ev.Agent("1_1", 1, 5)
    effects = [effect for _ in range(12) for effect in fleet.step()]
    (drain,) = [effect for effect in effects if isinstance(effect, ev.Drain)][:1]
    assert set(drain.ids) == {"1_0", "1_2"}
    assert not any("1_1" in getattr(effect, "ids", ()) for effect in effects)


def test_a_lower_maximum_sends_away_idle_hosts_first_then_those_with_least_to_do():
    fleet = Fleet(minimum=3, maximum=3)
    fleet.come(fleet.step())
    fleet.agents = {"1_0": ev.Agent("1_0", 1, 9), "1_1": ev.Agent("1_1", 1, 0, 0.1), "1_2": ev.Agent("1_2", 1, 2)}
    assert fleet.step(ev.Adapt(1, 1)) == [ev.Drain(("1_1", "1_2"))]


def test_a_request_that_failed_is_made_again_later_and_later_and_its_jobs_are_counted_if_they_come():
    fleet = Fleet(minimum=2, maximum=2)
    assert fleet.step() == [ev.Submit(1, 2)]
    assert ev.Log("WARNING", "sbatch: no") in fleet.step(ev.SubmitFailed(1, "sbatch: no"))
    assert fleet.core.status(fleet.now).lines == ("sbatch: no",)
    assert [fleet.step() for _ in range(4)] == [[]] * 4
    fleet.jobs["7_0"] = (1, JobState.PENDING)  # one was taken
    effects = [effect for _ in range(5) for effect in fleet.step()]
    assert [effect for effect in effects if isinstance(effect, ev.Submit)] == [ev.Submit(2, 1)]


def test_a_request_that_is_refused_for_good_is_said_once_and_made_again_after_a_long_pause():
    fleet = Fleet(minimum=2, maximum=2)
    assert fleet.step() == [ev.Submit(1, 2)]
    assert fleet.step(ev.SubmitFailed(1, "no such partition", is_final=True)) == [
        ev.Log("WARNING", "no such partition")
    ]
    began = fleet.now
    while not (effects := fleet.step()):
        assert fleet.core.status(fleet.now).lines == ("no such partition",)
    assert effects == [ev.Submit(2, 2)]
    assert fleet.now - began >= Limits.WRONG_BACK_OFF
    assert fleet.step(ev.SubmitFailed(2, "no such partition", is_final=True)) == []


def test_jobs_that_fail_together_are_one_failure_and_one_line():
    fleet = Fleet(minimum=3, maximum=3)
    fleet.step()
    fleet.jobs = {f"1_{n}": (1, JobState.ENDED) for n in range(3)}
    effects = fleet.step(ev.Submitted(1, tuple(fleet.jobs)))
    assert effects == [ev.Log("WARNING", "3 jobs ended before their hosts came: 1_0, 1_1, 1_2: no reason given")]
    assert fleet.step() == [ev.Submit(2, 3)], "a second later"
    fleet.jobs = {"2_0": (2, JobState.ENDED)}
    assert fleet.step(ev.Submitted(2, ("2_0",))) == [
        ev.Log("WARNING", "job 2_0 ended before its host came: no reason given")
    ]


def test_jobs_that_are_gone_are_over_though_nobody_sees_their_agents_go():
    """A program was killed, its scheduler ended with it, and its provisioner waited for agents for a minute."""
    fleet = Fleet(minimum=1, maximum=1)
    fleet.come(fleet.step())
    fleet.core.handle([ev.Unseen(), ev.End()], fleet.now)
    for _ in range(3):
        assert not fleet.core.is_over
        fleet.now += 0.3
        fleet.core.handle([ev.Listed((), fleet.now)], fleet.now)
    assert fleet.core.is_over


def test_an_agent_that_comes_before_its_job_is_known_is_not_taken_for_anothers():
    """Seed 4884: no host was wanted for a moment, as one of an unanswered request seemed to be somebody else's."""
    fleet = Fleet(idle_time=0.0)
    fleet.queue(1)
    assert fleet.step() == [ev.Submit(1, 1)]
    fleet.agents = {"1_0": ev.Agent("1_0", 1, 0, 0.5), "other": ev.Agent("", 1, 0, 0.5)}
    fleet.queue(2)
    fleet.step()
    assert fleet.core.wanted == 1
    fleet.step(ev.SubmitFailed(1, "timed out"))
    assert fleet.core.wanted == 1
    fleet.jobs = {"1_0": (1, JobState.RUNNING)}
    fleet.step()
    assert fleet.core.wanted == 1


def test_what_the_provider_has_said_of_a_failure_is_not_said_again():
    fleet = Fleet(minimum=1, maximum=1)
    fleet.step()
    ended = Job("dead#1", "x-1", JobState.ENDED, "dead", "no route to host", is_logged=True)
    assert fleet.core.handle([ev.Submitted(1, ("dead#1",)), ev.Listed((ended,), 2.0)], 2.0) == []
    assert fleet.core.status(2.0).lines == ("job dead#1 ended before its host came: no route to host",)


def test_what_never_comes_is_cancelled():
    fleet = Fleet(minimum=1, maximum=1, start_timeout=5.0, pending_timeout=100.0)
    fleet.step()
    fleet.jobs["1_0"] = (1, JobState.RUNNING)
    fleet.step(ev.Submitted(1, ("1_0",)))
    effects = [effect for _ in range(7) for effect in fleet.step()]
    assert ev.Cancel(("1_0",)) in effects
    assert not any(isinstance(effect, ev.Submit) for effect in effects), "while it is there it counts"


def test_another_host_is_asked_for_before_a_walltime_is_over():
    fleet = Fleet(minimum=1, maximum=2, lead=10.0)
    fleet.come(fleet.step())
    fleet.agents["1_0"] = ev.Agent("1_0", 1, 3, left=11.0)
    assert fleet.step() == []
    fleet.agents["1_0"] = ev.Agent("1_0", 1, 3, left=9.0)
    assert fleet.step() == [ev.Submit(2, 1)]


def test_a_new_provisioner_finds_its_jobs_before_it_asks_for_others():
    fleet = Fleet(is_new=False, minimum=2, maximum=2)
    fleet.jobs = {"5_0": (5, JobState.RUNNING)}
    effects = [effect for _ in range(15) for effect in fleet.step()]
    assert [effect for effect in effects if isinstance(effect, ev.Submit)] == [ev.Submit(6, 1)]


def test_nothing_is_decided_while_there_is_no_scheduler():
    fleet = Fleet(minimum=1)
    fleet.come(fleet.step())
    fleet.agents = {}
    listed = ev.Listed((Job("1_0", "x-1", JobState.RUNNING),), 500.0)
    for second in range(400):
        assert fleet.core.handle([ev.Unseen(), listed], 10.0 + second) == []


def test_at_the_end_all_jobs_are_cancelled_until_none_is_listed():
    fleet = Fleet(minimum=2)
    fleet.come(fleet.step())
    assert fleet.step(ev.End()) == [ev.Cancel(("1_0", "1_1"))]
    assert not fleet.core.is_over
    assert [effect for _ in range(6) for effect in fleet.step()] == [ev.Cancel(("1_0", "1_1"))], "said again"
    fleet.jobs = dict.fromkeys(fleet.jobs, (1, JobState.ENDED))
    fleet.step()
    assert fleet.core.is_over


@pytest.mark.parametrize("is_new", [True, False])
def test_an_end_waits_for_jobs_that_may_turn_up(is_new):
    fleet = Fleet(is_new, minimum=1, settle_time=2.0)
    if is_new:
        assert fleet.step() == [ev.Submit(1, 1)]
        fleet.step(ev.SubmitFailed(1, "sbatch did not answer within 20 s"))
    fleet.step(ev.End())
    assert not fleet.core.is_over
    fleet.jobs = {"1_0": (1, JobState.RUNNING)}
    assert ev.Cancel(("1_0",)) in fleet.step()
    fleet.jobs = {"1_0": (1, JobState.ENDED)}
    for _ in range(8):
        fleet.step()
    assert fleet.core.is_over


def test_the_end_of_one_that_has_asked_for_nothing_waits_for_nobody():
    fleet = Fleet()
    fleet.core.handle([ev.End()], 0.0)
    assert fleet.core.is_over


def test_a_list_that_failed_is_told_once_as_long_as_it_fails_in_the_same_way():
    fleet = Fleet()
    failed = ev.ListFailed("squeue: no controller")
    assert [fleet.core.handle([failed], second) for second in (0.0, 1.0)] == [[ev.Log("WARNING", failed.reason)], []]


# ---- what hosts are asked for with -----------------------------------------------------------------------------------
def test_agents_are_told_what_they_have_to_know():
    config = ProvisionConfig(
        "tcp://head:2345", "slurm", tag="work", workers=4, walltime=3600.0, capabilities=("gpu",), command="/x/agent",
        agent_options=("--drain-grace", "30"),
    )  # fmt: skip
    template = template_of(config, 7, Security(b"p" * 40, b"s" * 40))
    assert template.command == (
        "/x/agent", "tcp://head:2345", "--workers", "4", "--death-timeout", "600", "--walltime", "3597",
        "--capabilities", "gpu", "--drain-grace", "30",
    )  # fmt: skip
    assert (template.job_name, template.workers, template.walltime) == ("work-7", 4, 3600.0)
    assert template.environment == {"SCALER_KEY": "p" * 40 + "s" * 40}
    assert limits_of(config).capabilities == {"gpu"}


def test_agents_of_jobs_have_what_they_would_begin_again_for(monkeypatch):
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.check=3")
    environment = job_environment(HostTemplate("work", 7, ("agent",), environment={"SCALER_KEY": "k"}))
    assert start_environment.environment(environment) == {}
    assert environment["GLIBC_TUNABLES"].startswith("glibc.malloc.check=3:")
    assert environment["SCALER_KEY"] == "k"


def test_bad_settings_are_told_in_a_line():
    endless = [
        ({name: float("inf")}, f"{name} must be at most 1,000,000,000, not inf") for name in ("guess", "drain_time")
    ]
    others = [({"minimum": 5, "maximum": 2}, "must not be more than maximum"), ({"tag": "A b"}, "a-z")]
    for wrong, line in [*endless, *others]:
        with pytest.raises(OptionError, match=line):
            ProvisionConfig("tcp://head:2345", "local", **wrong)


def test_the_slurm_script_asks_for_what_the_template_and_the_options_say(tmp_path):
    slurm = make_provider("slurm", {"partition": "debug", "memory": "2G", "directives": ["--gres=gpu:1"]})
    script = slurm.script(3, HostTemplate("work", 7, ("agent", "it's"), walltime=90.0, workers=4))
    wanted = ["--job-name=work-7", "--array=0-2", "--cpus-per-task=4", "--time=1:30", "--partition=debug", "--mem=2G"]
    for line in [*wanted, "--gres=gpu:1"]:
        assert f"#SBATCH {line}\n" in script
    assert """exec agent 'it'"'"'s' --job "${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}\"""" in script
    own = tmp_path / "own.sh"
    own.write_text("#!/bin/sh\nexec $command --job $wrong\n")
    with pytest.raises(OptionError, match="template has a name that is not known"):
        make_provider("slurm", {"template": str(own)}).script(1, HostTemplate("work", 1, ("agent",)))


def test_variables_of_the_user_make_slurm_hide_no_job_and_contradict_no_script(monkeypatch):
    seen = {}

    def ask(command, title, timeout, text="", environment=None):
        seen[command[0]] = set(environment)
        return "7\n" if command[0] == "sbatch" else ""

    for name in ("SBATCH_JOB_NAME", "SBATCH_ARRAY_INX", "SBATCH_WAIT", "SBATCH_REQUEUE", "SBATCH_TIMELIMIT",
                 "SBATCH_PARTITION", "SBATCH_GRES", "SBATCH_ACCOUNT", "SQUEUE_PARTITION", "SCANCEL_STATE"):  # fmt: skip
        monkeypatch.setenv(name, "1")
    monkeypatch.setattr(slurm, "ask", ask)
    provider = make_provider("slurm", {"partition": "debug", "directives": ["--gres=gpu:1"]})
    provider.submit(2, HostTemplate("x", 1, ("scaler_cluster",), 60.0))
    provider.list("x")
    provider.cancel(["7_0"])
    assert {name for name in seen["sbatch"] if name.startswith("SBATCH_")} == {"SBATCH_ACCOUNT"}
    assert not any(name.startswith(("SQUEUE_", "SCANCEL_")) for name in seen["squeue"] | seen["scancel"])


@pytest.mark.parametrize(
    ("words", "is_final"),
    [
        (
            "invalid partition specified: x sbatch: error: Batch job submission failed: Invalid partition name",
            True,
        ),
        ("Batch job submission failed: Invalid account or account/partition combination specified", True),
        ("Batch job submission failed: Requested node configuration is not available", True),
        ("unrecognized option '--gress=gpu:1' Try \"sbatch --help\" for more information", True),
        ("Invalid --mem specification", True),
        ("Batch job submission failed: Invalid authentication credential", False),
        ("Batch job submission failed: Unable to contact slurm controller (connect failure)", False),
        ("QOSMaxSubmitJobPerUserLimit: Job violates accounting/QOS policy", False),
    ],
)
def test_what_sbatch_will_never_take_is_told_from_what_it_may_take_the_next_time(words, is_final, monkeypatch):
    def ask(*_):
        raise ProviderError(f"sbatch: {words}")

    monkeypatch.setattr(slurm, "ask", ask)
    with pytest.raises(ProviderError, match="sbatch: ") as refused:
        make_provider("slurm", {}).submit(1, HostTemplate("work", 1, ("agent",)))
    assert isinstance(refused.value, WrongRequest) is is_final


def test_a_log_of_slurm_may_have_blanks_in_its_name():
    text = make_provider("slurm", {"log": "/my logs/%j"}).preview(1, HostTemplate("x", 1, ("scaler_cluster",)))
    assert '#SBATCH --output="/my logs/%j"\n' in text


def test_a_wrong_name_or_option_is_told_with_what_there_is():
    assert {"local", "slurm"} <= set(names())
    with pytest.raises(UnknownProvider, match="did you mean 'slurm'"):
        make_provider("slrum")
    with pytest.raises(OptionError, match="'local', which has log; did you mean 'maximum'"):
        make_provider("local", {"maxmum": 3})
    with pytest.raises(OptionError, match="is no option of the provider 'slurm', which has partition"):
        make_provider("slurm", {"partitoin": "debug"})


def test_a_third_party_brings_its_provider_by_an_entry_point(monkeypatch):
    class Point:
        name = "ours"

        def load(self):
            return lambda options: ("made", options)

    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [Point()] * (group == "scaler.providers"))
    assert make_provider("ours", {"a": 1}) == ("made", {"a": 1})
