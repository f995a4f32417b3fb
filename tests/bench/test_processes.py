import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bench.processes import NotReady, Stat, cpu_seconds, free_ports, parse_stat, started, tree_ticks

# A line of Linux 6.18 with a command that tries to look like the end of the field.
LINE = "4242 (a) S 1 (b) S 17 4242 4242 0 -1 4194560 1021 0 0 0 250 31 7 5 20 0 3 0 88 231 400 1844674407370955 1 1 0 0"


def test_a_command_with_spaces_and_parentheses_does_not_shift_the_fields() -> None:
    assert parse_stat(LINE) == Stat(pid=4242, parent=17, ticks=281)


def test_this_process_can_be_read() -> None:
    stat = parse_stat(Path("/proc/self/stat").read_text())
    assert (stat.pid, stat.parent) == (os.getpid(), os.getppid())
    assert stat.ticks > 0


@pytest.mark.parametrize(
    "line", ["", "12 (x) S 1", "12 x S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15", "x (y) S " + "1 " * 20]
)
def test_what_is_no_stat_line_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_stat(line)


def test_a_process_is_charged_for_its_descendants_and_for_nobody_else() -> None:
    tree = {1: (0, 1000), 5: (1, 10), 7: (5, 20), 8: (7, 30), 9: (1, 500)}
    stats = {pid: Stat(pid, parent, ticks) for pid, (parent, ticks) in tree.items()}
    assert tree_ticks(5, stats) == 60
    assert tree_ticks(8, stats) == 30
    assert tree_ticks(77, stats) == 0


def test_the_work_of_a_child_of_a_child_is_seen() -> None:
    spin = "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True); time.sleep(60)"
    outer = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {spin!r}])"
    with subprocess.Popen([sys.executable, "-c", outer], stdout=subprocess.PIPE, start_new_session=True) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            assert cpu_seconds({"it": process.pid})["it"] >= 0.25
        finally:
            os.killpg(process.pid, 9)


def test_free_ports_differ_and_can_be_bound() -> None:
    ports = free_ports(5)
    assert len(set(ports)) == 5
    for port in ports:
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", port))


def test_a_port_in_use_is_not_given() -> None:
    (first,) = free_ports(1)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", first))
        assert first not in free_ports(3)


def test_the_block_ends_the_process_and_what_it_started(tmp_path: Path) -> None:
    # The outer process ends at SIGTERM; its child, which ignores it, must not outlive the block.
    inner = (
        "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print('child', os.getpid(), flush=True); time.sleep(60)"
    )
    outer = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {inner!r}])"
    with started("it", [sys.executable, "-c", outer], tmp_path / "log") as running:
        deadline = time.monotonic() + 20
        while not running.log.read_text().endswith("\n") and time.monotonic() < deadline:
            time.sleep(0.02)
        child = int(running.log.read_text().split()[1])
        assert alive(child)
    assert running.process.returncode is not None
    deadline = time.monotonic() + 5
    while alive(child) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not alive(child)


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_a_process_that_ends_early_is_reported_with_its_output(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import sys; sys.exit('the port is taken')"]
    with (
        started("it", command, tmp_path / "log") as running,
        pytest.raises(NotReady, match=r"(?s)it ended with status 1.*the port is taken"),
    ):
        running.wait_for(free_ports(1)[0], "/", 20)


def test_a_process_that_does_not_answer_is_reported_in_time(tmp_path: Path) -> None:
    with (
        started("it", [sys.executable, "-c", "import time; time.sleep(60)"], tmp_path / "log") as running,
        pytest.raises(NotReady, match=r"/ready on port \d+ gave no connection for 0\.2 s"),
    ):
        running.wait_for(free_ports(1)[0], "/ready", 0.2)


def test_an_answer_of_200_is_ready_and_another_is_not(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1"]
    with started("it", command, tmp_path / "log", cwd=tmp_path) as running:
        running.wait_for(port, "/", 20)
        with pytest.raises(NotReady, match="gave 404"):
            running.wait_for(port, "/missing", 0.2)
        with pytest.raises(NotReady, match="gave 501"):
            running.wait_for(port, "/", 0.2, body=b"{}")
