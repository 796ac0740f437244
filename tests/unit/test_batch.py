"""Batch systems: templates that do not do, commands that hang, and jobs of others."""

import os
from types import SimpleNamespace

import pytest
from support import until

from scaler.config import OptionError
from scaler.provisioning import batch, pbs, sge
from scaler.provisioning.provider import HostTemplate, ProviderError
from scaler.provisioning.registry import make_provider

TEMPLATE = HostTemplate("work", 7, ("agent",), walltime=0.2)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"#SBATCH --array=0-$last\nexec $command --job x\n", "no \\$name, without which its jobs cannot be counted"),
        (b"#SBATCH -J $name\nexec $command --job x\n", "no \\$last, without which"),
        (b"#SBATCH -J $name --array=0-$last\nexec agent --job x\n", "no \\$command, without which"),
        (b"#SBATCH -J $name --array=0-$last\nexec $command\n", "does not say --job and the job's id"),
        (b"#SBATCH -J $name --array=0-$last\nexec $command --job $SLURM_JOB_ID\n", "not known.*SLURM_JOB_ID"),
        (b"\xff\xfe", "cannot be read: .*decode"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("system", ["slurm", "lsf"])
def test_a_template_whose_jobs_could_not_be_counted_is_refused_at_the_start(text, words, system, tmp_path):
    path = tmp_path / "own.sh"
    path.write_bytes(text)
    with pytest.raises(OptionError, match=words.replace("last", "last" if system == "slurm" else "n")):
        make_provider(system, {"template": str(path)})
    path.write_text("#SBATCH -J $name --array=0-$last -c $n\nexec $command --job $$SLURM_JOB_ID\n")
    assert "exec agent --job $SLURM_JOB_ID" in make_provider(system, {"template": str(path)}).script(2, TEMPLATE)


def test_a_short_walltime_is_not_none_at_all():
    assert "#SBATCH --time=0:01\n" in make_provider("slurm", {}).script(1, TEMPLATE)


def test_where_each_host_is_a_request_one_that_did_not_answer_puts_all_in_doubt_and_one_that_was_refused_only_itself(
    monkeypatch,
):
    answers = iter([])

    def ask(*arguments):
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(batch, "ask", ask)
    provider = make_provider("pbs", {})
    answers = iter(["41.head\n", ProviderError("qsub: too many jobs")])
    assert provider.submit(3, TEMPLATE) == ["41.head"]
    answers = iter(["42.head\n", batch.NoAnswer("qsub did not answer within 20 s")])
    with pytest.raises(ProviderError, match="did not answer"):
        provider.submit(3, TEMPLATE)


def test_jobs_of_another_user_with_the_same_tag_are_left_alone(monkeypatch):
    monkeypatch.setattr(batch.pwd, "getpwuid", lambda uid: SimpleNamespace(pw_name="ann"))
    text = "".join(
        f"Job Id: {n}.head\n    Job_Name = work-1\n    Job_Owner = {owner}@head\n    job_state = R\n\n"
        for n, owner in enumerate(["ann", "bob"])
    )
    assert [job.id for job in pbs.jobs(text)] == ["0.head"]
    text = "".join(
        f"<job_list><JB_job_number>{n}</JB_job_number><JB_name>work-1</JB_name><JB_owner>{owner}</JB_owner>"
        "<state>r</state></job_list>"
        for n, owner in enumerate(["bob", "ann"])
    )
    assert [job.id for job in sge.jobs(f"<job_info>{text}</job_info>")] == ["1.1"]


def test_where_nobody_knows_what_this_user_is_called_all_jobs_count(monkeypatch):
    def unknown(uid):
        raise KeyError(uid)

    monkeypatch.setattr(batch.pwd, "getpwuid", unknown)
    assert batch.is_ours("bob@head")


@pytest.mark.parametrize("script", ["sleep 1000; true", "sleep 1000 & exit 0"])
def test_a_command_that_does_not_end_takes_along_what_it_has_started(script, tmp_path):
    """As where a script of the site wraps the system's own command."""
    wrapper = tmp_path / "squeue"
    wrapper.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/group\n{script}\n")
    wrapper.chmod(0o755)
    with pytest.raises(batch.NoAnswer, match="squeue did not answer within"):
        batch.ask([str(wrapper)], "Slurm", 1.0)
    group = int((tmp_path / "group").read_text())
    until(lambda: not _has_members(group), "its processes to be gone")


def _has_members(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_what_a_command_says_and_is_told_passes():
    assert (
        batch.ask(["sh", "-c", "cat; echo $SAID"], "Slurm", 20.0, "told\n", {**os.environ, "SAID": "said"})
        == "told\nsaid\n"
    )
    with pytest.raises(ProviderError, match="sh: no such queue"):
        batch.ask(["sh", "-c", "echo no such queue >&2; exit 3"], "Slurm", 20.0)
