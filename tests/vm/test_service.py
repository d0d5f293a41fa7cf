# SPDX-License-Identifier: Apache-2.0
"""The service on hosts that this one is not: root on cgroup v2 and on a hybrid host with 6.1, and an ordinary user on v2.

The tests are a part of the contract's, and those of service_inside.py; machines.py runs them in one VM for each host.
"""
import machines
import pytest
from machines import Machine

CONTRACT = "tests/service/contract"
INSIDE = "tests/vm/service_inside.py"


def tests(file, *names):
    return [f"{CONTRACT}/test_{file}.py::test_{name}" for name in names]


# How a command ends is told by counters, which each kind of cgroup has in places of its own.
ENDS = tests("ends", "seccomp_violation", "timeout", "cpu_time", "idle_timeout", "oom", "oom__of_a_child_is_a_limit_that_was_hit",
             "pids_limit_is_hit", "killed")
LIVES = tests("lifecycle", "pause_keeps_memory_and_stops_the_processor", "a_paused_sandbox_can_be_killed",
              "timeout_kills_with_its_reason", "on_timeout_pause", "idle_timeout_ends_what_does_nothing",
              "work_counts_against_the_idle_timeout[native-work_processor]")
MORE = [
    *tests("ends", "exited", "signaled", "output_limit", "cancelled", "create_failed"),
    *tests("lifecycle", "defaults", "every_option_is_what_the_sandbox_then_is", "touch_resumes"),
    *tests("exec", "out_of_memory_of_the_command", "an_earlier_oom_is_not_blamed_on_a_later_command",
           "timeout_kills_the_command_and_its_session", "stdin"),
    *tests("processes", "object_and_list", "every_process_inside", "a_terminal", "control_c_at_a_terminal"),
    *tests("files", "round_trip", "stat", "mkdir_move_remove", "full_disk_is_an_error_and_keeps_the_old", "watch",
           "fs24_a_link_to_the_host_names_nothing"),
    *tests("ports", "request_and_answer_pass_as_they_are", "a_server_on_another_address_is_not_reached"),
    *tests("runs", "files_come_first"),
    *tests("archive", "out_and_in_again"),
]
MACHINES = {
    "v2-root": Machine([], [*ENDS, *LIVES, *MORE, INSIDE], "not test_user"),
    "v2-user": Machine(["--user"], [*ENDS, *LIVES, *MORE, INSIDE], "not test_clock and not test_root"),
    "hybrid-root": Machine(["--cgroup", "hybrid"], [*ENDS, *LIVES, INSIDE], "not test_user and not test_clock"),
}


def pytest_generate_tests(metafunc):
    machines.parametrize(metafunc, MACHINES)


@pytest.fixture(scope="module")
def vm():
    machines.need_vm()


@pytest.fixture(scope="module")
def reports(vm, request):
    yield from machines.reports(request, MACHINES)


def test_inside(reports, machine, inner):
    machines.judge(reports, machine, inner)
