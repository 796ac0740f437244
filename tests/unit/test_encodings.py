"""Text files are of the same encoding wherever they are read: none depends on the locale unsaid."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "program",
    [
        "from scaler.common.host import boot_id; boot_id()",
        "from scaler.common.host_memory import available_memory; available_memory()",
        "from scaler.agent.alive_file import AliveFile; AliveFile('alive')",
        "from scaler.agent.warm_process import _name_of, _running; import os; _name_of(os.getpid()), _running()",
        "from scaler.monitor.access import token_from; assert token_from('token') == token_from('token')",
        "from scaler.cli.logs import set_up; set_up('INFO', 'log')",
        "import sys; from scaler.cli.asking import quietly; sys.stdout = None; quietly(int)",
        "from scaler.cluster.process import set_up_log; set_up_log('INFO', ['log'])",
        "import sys; from scaler.common import standard_descriptors\nsys.stdin = None; standard_descriptors.complete()",
        "open('hosts', 'w', encoding='utf-8').write('a b')\n"
        "from scaler.provisioning.ssh_options import checked, hosts_of; hosts_of(checked({'hosts_file': 'hosts'}))",
        "from scaler.provisioning.batch import ask; ask(['cat'], 'cat', 9, 'text')",
        "from scaler.worker import profiling; profiling.begin()",
        "from scaler.serialize.mapped_files import _file_at; _file_at(1, 2, False)",
        "from scaler.store.directory import StoreDirectory; StoreDirectory('.').remove()",
        "from pathlib import Path; from scaler.scheduler.jobs.result_files import ResultFiles\n"
        "Path('journal').mkdir(); ResultFiles('results', 'journal').begin('', False)",
    ],
)
def test_nothing_is_read_or_written_in_the_encoding_of_the_locale_unsaid(tmp_path, program):
    command = [sys.executable, "-X", "warn_default_encoding", "-W", "error::EncodingWarning", "-c", program]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=50)
    assert (ran.returncode, ran.stderr) == (0, "")
