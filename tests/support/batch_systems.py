"""Commands of batch systems, for tests: they take the scripts that ours do, run them for real, and speak as theirs.

Run as a program it is the command that it is called as; state is in $FAKE_BATCH. While there is a file `hold` there,
no job begins; while there is `down`, its server does not answer, and only what needs none of it does. What a job prints
goes where its system puts it: beside who asked, unless it is told where.
"""

import json
import os
import pwd
import re
import signal
import subprocess
import sys
from pathlib import Path

COMMANDS = (
    "qsub", "qstat", "qdel", "bsub", "bjobs", "bkill", "lsid", "condor_submit", "condor_q", "condor_rm",
    "condor_version",
)  # fmt: skip
#: whose jobs all of them are
USER = pwd.getpwuid(os.getuid()).pw_name


def install(directory, system):
    """Put the commands into a directory; returns the variables that they need."""
    for name in COMMANDS:
        path = directory / name
        called = f"runpy.run_path({__file__!r}, {{'CALLED': {name!r}}}, '__main__')"
        path.write_text(f"#!{sys.executable} -SE\nimport runpy\n{called}\n")
        path.chmod(0o755)
    (directory / "state").mkdir()
    path = f"{directory}{os.pathsep}{os.environ['PATH']}"
    return {"PATH": path, "FAKE_BATCH": str(directory / "state"), "FAKE_SYSTEM": system}


class Jobs:
    """What is kept of them: a file each."""

    def __init__(self):
        self.root = Path(os.environ["FAKE_BATCH"])

    def all(self):
        for path in sorted(self.root.glob("job-*")):
            job = json.loads(path.read_text())
            job["path"] = path
            if job["pid"] is None:
                job["state"] = "pending"
            else:
                job["state"] = "running" if self._lives(job["pid"]) else "ended"
            yield job

    @staticmethod
    def _lives(pid):
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return False
        return stat.rpartition(")")[2].split()[0] not in "ZX"

    def add(self, number, index, name, command, environment, output, errors=None):
        """Run a job. `output`: the file for what it prints; `errors`: that for its errors if it is another one."""
        pid = None
        if not (self.root / "hold").exists():
            with open(os.devnull) as null, open(output, "ab") as out, open(errors or output, "ab") as err:
                process = subprocess.Popen(
                    command, env={**os.environ, **environment}, start_new_session=True, stdin=null,
                    stdout=out, stderr=err,
                )  # fmt: skip
            pid = process.pid
        job = {"number": number, "index": index, "name": name, "pid": pid}
        unseen = self.root / f"new-{number:04d}-{index}"  # until it is whole: others list jobs meanwhile
        unseen.write_text(json.dumps(job))
        unseen.rename(self.root / f"job-{number:04d}-{index}")

    def next(self):
        path = self.root / "count"
        number = int(path.read_text()) + 1 if path.exists() else 41
        path.write_text(str(number))
        return number

    def end(self, number, index=None):
        found = False
        for job in list(self.all()):
            if job["number"] == number and index in (None, job["index"]):
                found = job["state"] != "ended"
                if job["state"] == "running":
                    os.killpg(job["pid"], signal.SIGTERM)
                elif job["state"] == "pending":
                    job["path"].unlink()
        return found


def script_of(text, number):
    path = Path(os.environ["FAKE_BATCH"]) / f"script-{number}"
    if not path.exists():  # the first job of an array may be just reading it
        path.write_text(text)
    return ["/bin/sh", str(path)]


def option(text, pattern):
    found = re.search(pattern, text, re.MULTILINE)
    return found[1] if found else None


def fail(words, code=1):
    print(words, file=sys.stderr)
    sys.exit(code)


def pbs(command, arguments, jobs):
    if command == "qsub":
        *said, file = arguments
        said = dict(zip(said[::2], said[1::2], strict=True))
        text, number = Path(file).read_text(), jobs.next()
        if option(text, r"^#PBS -q (\S+)") == "closed":
            fail("qsub: Unauthorized Request")
        environment = {"PBS_JOBID": f"{number}.head"}
        # as Slurm's qsub, which heeds its command line alone
        output = said.get("-o", f"{Path(file).name}.o{number}")
        errors = output if "-j" in said else said.get("-e", f"{Path(file).name}.e{number}")
        jobs.add(number, 0, option(text, r"^#PBS -N (\S+)"), script_of(text, number), environment, output, errors)
        print(f"{number}.head")
    elif command == "qstat":
        for job in jobs.all():
            letter = {"pending": "Q", "running": "R", "ended": "F"}[job["state"]]
            print(f"Job Id: {job['number']}.head\n    Job_Name = {job['name']}\n    Job_Owner = {USER}@head")
            print(f"    job_state = {letter}")
            if letter == "R":
                print("    exec_host = node7/0*2")
            if letter == "Q":
                print("    comment = Not Running: Insufficient amount of resource:\n\t ncpus")
            print("    Exit_status = 271\n" if letter == "F" else "")
    elif not all(map(jobs.end, [int(name.partition(".")[0]) for name in arguments])):
        fail(f"qdel: Job has finished {arguments[0]}", 35)


def sge(command, arguments, jobs):
    if command == "qsub":
        text, number = sys.stdin.read(), jobs.next()
        n = int(option(text, r"^#\$ -t 1-(\d+)"))
        for index in range(1, n + 1):
            environment = {"JOB_ID": str(number), "SGE_TASK_ID": str(index)}
            name = option(text, r"^#\$ -N (\S+)")
            output = option(text, r"^#\$ -o (\S+)") or f"{name}.o{number}.{index}"
            joined = option(text, r"^#\$ -j (y)")
            errors = output if joined else option(text, r"^#\$ -e (\S+)") or f"{name}.e{number}.{index}"
            jobs.add(number, index, name, script_of(text, number), environment, output, errors)
        print(f"{number}.1-{n}:1")
    elif command == "qstat" and "-help" in arguments:
        print("SGE 8.1.9\nusage: qstat [options]")
    elif command == "qstat":
        print("<?xml version='1.0'?>\n<job_info><queue_info>")
        for job in jobs.all():
            if job["state"] == "ended":
                continue
            letters = {"pending": "Eqw", "running": "r"}[job["state"]]
            queue = "all.q@node7" if letters == "r" else ""
            print(
                f"<job_list><JB_job_number>{job['number']}</JB_job_number><JB_name>{job['name']}</JB_name>"
                f"<JB_owner>{USER}</JB_owner>"
                f"<state>{letters}</state><queue_name>{queue}</queue_name><tasks>{job['index']}</tasks></job_list>"
            )
        print("</queue_info></job_info>")
    else:
        for name in arguments:
            number, _, index = name.partition(".")
            if not jobs.end(int(number), int(index)):
                fail(f'denied: job "{name}" does not exist')


def lsf(command, arguments, jobs):
    if command == "bsub":
        text, number = sys.stdin.read(), jobs.next()
        name, n = re.search(r'^#BSUB -J "(\S+)\[1-(\d+)\]"', text, re.MULTILINE).groups()
        for index in range(1, int(n) + 1):
            environment = {"LSB_JOBID": str(number), "LSB_JOBINDEX": str(index)}
            output = option(text, r"^#BSUB -o (\S+)") or "mail"
            jobs.add(number, index, f"{name}[{index}]", script_of(text, number), environment, output)
        print(f"Job <{number}> is submitted to default queue <normal>.")
    elif command == "lsid":
        print("IBM Spectrum LSF Standard 10.1.0.13")
    elif command == "bjobs":
        found = list(jobs.all())
        if not found:
            fail("No job found", 255)
        for job in found:
            state = {"pending": "PEND", "running": "RUN", "ended": "EXIT"}[job["state"]]
            host = "-" if state == "PEND" else "2*node7"
            reason = "New job is waiting for scheduling;" if state == "PEND" else "-"
            print(f"{job['number']}|{job['index']}|{state}|{host}|{job['name']}|{reason}")
    else:
        for name in arguments:
            number, index = re.fullmatch(r"(\d+)\[(\d+)\]", name).groups()
            if not jobs.end(int(number), int(index)):
                fail(f"Job <{name}>: Job has already finished", 255)


def htcondor(command, arguments, jobs):
    if command == "condor_submit":
        text, number = sys.stdin.read(), jobs.next()
        quoted = option(text, r"^arguments = \"(.*)\"$").replace('""', '"')
        name, n = option(text, r'^\+ScalerName = "(.*)"$'), int(option(text, r"^queue (\d+)"))
        for index in range(n):
            expanded = quoted.replace("$(ClusterId)", str(number)).replace("$(ProcId)", str(index))
            words = [part.replace("''", "'") for part in re.findall(r"'((?:[^']|'')*)'|(\S+)", expanded)[1]]
            output, errors = (option(text, rf"^{which} = (\S+)") or os.devnull for which in ("output", "error"))
            jobs.add(number, index, name, ["/bin/sh", "-c", words[0]], {}, output, errors)
        print(f"{number}.0 - {number}.{n - 1}")
    elif command == "condor_version":
        print("$CondorVersion: 23.4.0 $")
    elif command == "condor_q":
        found = []
        for job in jobs.all():
            status = {"pending": 5, "running": 2, "ended": 4}[job["state"]]
            one = {"ClusterId": job["number"], "ProcId": job["index"], "JobStatus": status, "ScalerName": job["name"]}
            if status == 2:
                one["RemoteHost"] = "slot1@node7"
            if status == 5:
                one["HoldReason"] = "submitted on hold at user's request"
            found.append(one)
        if found:
            print(json.dumps(found))
    else:
        for name in arguments:
            number, _, index = name.partition(".")
            if not jobs.end(int(number), int(index)):
                fail(f"Job {name} not found")


#: what commands say when they reach no server, and those that need none
DOWN = {
    "pbs": "Connection refused", "sge": "error: commlib error: got select error (Connection refused)",
    "lsf": "Failed in an LSF library call: LIM is down; try later", "htcondor": "Error: Can't find address of schedd",
}  # fmt: skip
ALONE = (["qstat", "-help"], ["condor_version"])

if __name__ == "__main__":
    system = {"pbs": pbs, "sge": sge, "lsf": lsf, "htcondor": htcondor}[os.environ["FAKE_SYSTEM"]]
    if (Jobs().root / "down").exists() and [CALLED, *sys.argv[1:]] not in ALONE:  # noqa: F821
        fail(DOWN[os.environ["FAKE_SYSTEM"]])
    system(CALLED, sys.argv[1:], Jobs())  # noqa: F821  it is given by the commands
