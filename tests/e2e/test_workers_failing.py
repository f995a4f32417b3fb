"""Workers that die, hang, are slow or leave, behind a real Envoy: what it costs, and that all is well afterwards."""

import signal
import time
from pathlib import Path

import psutil
import pytest

from tests.e2e.stack import Stack, engines, until
from tests.e2e.workers import Load, Stream, running, with_workers

CLIENTS = 6


def settled(stack: Stack) -> None:
    """Assert that nothing is held any more, and that no lease had to run out for that."""
    until(lambda: stack.inflight() == {}, 10, "nothing is in flight")
    assert stack.total("tidegate_reservations_expired_total") == 0


@pytest.mark.parametrize("transport", ["grpc", "h2"])
def test_a_killed_worker_costs_only_requests_that_it_had_begun_to_answer(tmp_path: Path, transport: str) -> None:
    with engines(tmp_path, "h100", "h100") as ports:
        config = with_workers(ports)
        config["control"]["ext_proc_transport"] = transport
        with running(tmp_path, config) as (stack, workers):
            with Load(stack).from_clients(CLIENTS) as load:
                load.more(100)
                assert not load.failures()
                killed = workers.process(0)
                killed.kill()
                load.more(100)
                until(lambda: workers.status()[0]["restarts"] == 1, 10, "it is started again")
                workers.ready()
                load.more(50)
            failures = load.failures()
            assert len(failures) <= CLIENTS // 2, "each client had at most one request, and half of them were elsewhere"
            assert {answer.status for answer in failures} <= {503}
            assert max(answer.seconds for answer in load.answers) < 5
            assert workers.process(0).pid != killed.pid
            settled(stack)
            assert "worker 1" in stack.log().partition("ended unexpectedly")[2]


def test_with_all_workers_killed_requests_are_refused_at_once_and_answers_go_on(tmp_path: Path) -> None:
    with engines(tmp_path, "rtx4090", options=("--speed", "0.5")) as ports:
        config = with_workers(ports)
        config["limits"] = {"absence_seconds": 0}
        with running(tmp_path, config) as (stack, workers):
            streams = [Stream(stack, 150) for _ in range(10)]
            until(lambda: stack.total("tidegate_inflight_requests") == 10, 10, "ten streams run")
            processes = [workers.process(number) for number in range(2)]
            main = stack.child("serve")
            main.suspend()  # so that nobody starts them again
            try:
                for process in processes:
                    process.kill()
                for _ in range(5):
                    began = time.monotonic()
                    status, answer, headers = stack.ask()
                    assert (status, answer["error"]["code"]) == (503, "service_unavailable")
                    assert time.monotonic() - began < 1
                    assert headers["retry-after"] == "1"
                assert all(stream.is_running for stream in streams)
            finally:
                main.resume()
            assert all(stream.finished() for stream in streams)
            workers.ready()
            until(lambda: stack.ask()[0] == 200, 10, "they decide again")
            settled(stack)


def test_a_worker_that_hangs_is_left_out_and_what_it_says_later_is_discarded(tmp_path: Path) -> None:
    with engines(tmp_path, "h100", "h100") as ports, running(tmp_path, with_workers(ports)) as (stack, workers):
        with Load(stack).from_clients(CLIENTS) as load:
            load.more(50)
            hung = workers.process(0)
            hung.suspend()
            began = time.monotonic()
            try:
                time.sleep(3)  # Envoy asks for its health every second, and waits for one more
                load.more(100)
                time.sleep(5)  # it gives up what is open there when pings were not answered for as long
            finally:
                hung.resume()
            load.more(100)
        late = [answer for answer in load.answers if answer.sent_at > began + 3]
        assert len(late) > 100
        assert all(answer.status == 200 and answer.seconds < 2 for answer in late)
        assert len(load.failures()) <= CLIENTS
        assert max(answer.seconds for answer in load.answers) < 10, "the limit of a decision"
        assert hung.is_running(), "it was not killed for a few seconds of silence"
        settled(stack)


def test_with_all_workers_hung_requests_end_at_the_decisions_limit_and_nothing_piles_up(tmp_path: Path) -> None:
    with engines(tmp_path, "h100") as ports:
        config = with_workers(ports)
        config["limits"] = {"decision_timeout_seconds": 1, "absence_seconds": 0}
        with running(tmp_path, config) as (stack, workers):
            processes = [workers.process(number) for number in range(2)]
            with Load(stack).from_clients(CLIENTS, pause=0.1) as load:
                load.more(20)
                for process in processes:
                    process.suspend()
                began = time.monotonic()
                try:
                    time.sleep(6)
                    assert workers.stat("cluster.tidegate_ext_proc.upstream_rq_active") <= CLIENTS
                finally:
                    for process in processes:
                        process.resume()
                resumed = time.monotonic()
                until(lambda: stack.ask()[0] == 200, 10, "they decide again")
                load.more(50)
            hung = [answer for answer in load.answers if began + 0.1 < answer.sent_at < resumed - 2]
            assert hung
            assert {answer.status for answer in hung} <= {503, 504}
            assert max(answer.seconds for answer in hung) < 2.5, "a limit of one second, for each of two messages"
            assert workers.stat("cluster.tidegate_ext_proc.upstream_rq_active") <= 1
            settled(stack)
            assert [process.is_running() for process in processes] == [True, True]


def test_a_slow_decision_is_either_in_time_or_a_504_and_counted_once(tmp_path: Path) -> None:
    with engines(tmp_path, "h100") as ports:
        config = with_workers(ports)
        config["limits"] = {"decision_timeout_seconds": 0.4, "absence_seconds": 0}
        with running(tmp_path, config) as (stack, workers):
            processes = [workers.process(number) for number in range(2)]
            statuses = []
            for pause in (0.15, 0.15, 0.9, 0.15, 0.9):
                for process in processes:
                    process.suspend()
                with Load(stack).from_clients(1, pause=0) as load:
                    time.sleep(pause)
                    for process in processes:
                        process.resume()
                statuses.append([answer.status for answer in load.answers])
            assert {status for answers in (statuses[0], statuses[1], statuses[3]) for status in answers} == {200}
            assert all(answers[0] in {503, 504} for answers in (statuses[2], statuses[4])), statuses
            every = [status for answers in statuses for status in answers]
            stack.settle()
            for status in set(every):
                assert stack.total("tidegate_requests_total", code=str(status)) == every.count(status)
            settled(stack)
            assert workers.stat("cluster.tidegate_ext_proc.upstream_rq_pending_overflow") == 0


def test_large_prompts_of_one_client_do_not_keep_the_others_waiting(tmp_path: Path) -> None:
    with engines(tmp_path, "h100") as ports, running(tmp_path, with_workers(ports)) as (stack, workers):
        prompt = "a slow prompt, with 1234 numbers and words. " * 40_000
        with Load(stack).from_clients(2) as load:
            for _ in range(6):
                assert stack.ask(prompt, max_tokens=1)[0] in {200, 400}, "the engine may find it too long"
            load.more(20)
        assert not load.failures()
        assert max(answer.seconds for answer in load.answers) < 5
        assert workers.stat("cluster.tidegate_ext_proc.membership_healthy") == 2
        settled(stack)


@pytest.mark.parametrize("transport", ["grpc", "h2"])
def test_a_worker_that_is_asked_to_leave_loses_no_request(tmp_path: Path, transport: str) -> None:
    with engines(tmp_path, "h100", "h100") as ports:
        config = with_workers(ports)
        config["control"]["ext_proc_transport"] = transport
        with running(tmp_path, config) as (stack, workers):
            with Load(stack).from_clients(CLIENTS) as load:
                for number in (0, 1):
                    load.more(50)
                    workers.process(number).send_signal(signal.SIGTERM)
                    until(lambda: workers.status()[number]["restarts"] == 1, 10, "it is replaced")  # noqa: B023
                    workers.ready()
                load.more(50)
            assert not load.failures()
            assert "ended unexpectedly" not in stack.log()
            assert stack.log().count("worker leaving") == 2
            settled(stack)


def test_no_worker_outlives_a_killed_main_process_and_the_next_one_serves(tmp_path: Path) -> None:
    with engines(tmp_path, "h100") as ports:
        config = with_workers(ports)
        config["limits"] = {"absence_seconds": 10}  # a busy machine may need more than 3 to start them all
        with running(tmp_path, config) as (stack, workers):
            processes = [workers.process(number) for number in range(2)]
            processes[1].suspend()  # one that could not end itself
            with Load(stack).from_clients(CLIENTS) as load:
                load.more(50)
                stack.child("serve").kill()
                gone, alive = psutil.wait_procs(processes, timeout=5)
                assert (len(gone), alive) == (2, [])
                load.more(50)
                workers.ready()
                load.more(50)
            assert len(load.failures()) <= CLIENTS
            settled(stack)


def test_everything_ends_quickly_on_a_signal(tmp_path: Path) -> None:
    with engines(tmp_path, "h100") as ports, running(tmp_path, with_workers(ports)) as (stack, workers):
        processes = [workers.process(number) for number in range(2)]
        with Load(stack).from_clients(1) as load:
            load.more(10)
        began = time.monotonic()
        assert stack.process.stop() == 0
        assert time.monotonic() - began < 2.5
        assert not any(process.is_running() for process in processes)
        assert "level=error" not in stack.log()
