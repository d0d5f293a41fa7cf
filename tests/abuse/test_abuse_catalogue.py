# SPDX-License-Identifier: Apache-2.0
"""Every id of the catalogue is tested, in whatever suite, or listed with the reason why not. catalogue.txt is the list of ids,
LEFT_OUT.md the reasons. A test's name says which ids it tests: test_AP_04_..., test_PX_15_PX_17_..."""
import re
from pathlib import Path

HERE = Path(__file__).resolve().parent
TESTS = HERE.parent
ID = re.compile(r"(?<![A-Za-z0-9])([A-Z]{2})[-_](\d{2})(?!\d)")


def catalogue():
    return set((HERE / "catalogue.txt").read_text().split())


def left_out():
    found = {}
    for line in (HERE / "LEFT_OUT.md").read_text().splitlines():
        hit = re.match(r"- ([A-Z]{2}-\d{2}) (.+)", line)
        if hit:
            assert hit[1] not in found, f"{hit[1]} is listed twice"
            found[hit[1]] = hit[2]
    return found


def texts():
    """What is in the files of tests, by their path below tests/."""
    return {str(f.relative_to(TESTS)): f.read_text() for f in TESTS.rglob("test_*.py") if f.name != Path(__file__).name}


def names_in(text):
    return set(re.findall(r"^def (test_\w+)\(", text, re.M))


def ids_in(name):
    return {f"{a}-{b}" for a, b in ID.findall(name)}


def ids_tested():
    """Ids in the names of test functions, in rows of Attack and in the rows of test_abuse_peer.DOS."""
    ids = set()
    for file, text in texts().items():
        ids |= {i for name in names_in(text) if not name.endswith("_control") for i in ids_in(name)}
        if file.startswith("abuse/"):
            ids |= set(re.findall(r'^    (?:Attack)?\("([A-Z]{2}-\d{2})", "', text, re.M))
    return ids


def test_every_attack_is_tested_or_left_out_with_a_reason():
    assert len(catalogue()) == 181
    missing = catalogue() - ids_tested() - set(left_out())
    assert not missing, f"neither tested nor in LEFT_OUT.md: {sorted(missing)}"


def test_nothing_is_both():
    assert not ids_tested() & set(left_out())


def test_no_id_is_made_up():
    assert ids_tested() <= catalogue() and set(left_out()) <= catalogue(), (ids_tested() | set(left_out())) - catalogue()


def test_reasons_are_reasons():
    assert all(len(reason) > 20 for reason in left_out().values())


# Where the same action passes, for ids with no test named ..._control: in the attack's own test, or in one of its neighbours.
IMAGES, ARCHIVE, API, HTTP = ("images/test_hostile.py", "service/contract/test_archive.py", "service/test_api_bad_input.py",
                              "service/test_http_hostile.py")
PROXY, TLS, SMUGGLING, LIMITS, OPENED = (f"egress/test_egress_{part}.py" for part in ("proxy", "tls", "smuggling", "limits", "opened"))
CONTROLS = {
    "FS-08": (IMAGES, "FS_08_root_with_links_for_our_places"), "FS-09": (IMAGES, "FS_09_links_for_device_nodes"),
    "FS-11": (IMAGES, "FS_11_fake_proc"), "FS-19": (IMAGES, "FS_19_file_capabilities"), "FS-31": (ARCHIVE, "in"),
    "FS-32": (ARCHIVE, "out"), "FS-33": (ARCHIVE, "the_hand_made_header_is_good"), "RE-07": (IMAGES, "RE_07_lying_digest"),
    "DK-07": ("service/test_spawner.py", "DK_07_two_disks_do_not_borrow"), "AP-02": (API, "AP_02_a_tenant_sees_nothing_of_another"),
    "AP-03": (API, "AP_03_what_is_authorised_is_what_runs"), "AP-04": (HTTP, "no_deadline_while_the_handler_takes_its_time"),
    "AP-07": (API, "AP_07_rebinding_and_foreign_pages"), "AP-09": (API, "AP_09_websocket_rules_of_the_door"),
    "AP-12": (API, "pipelined_requests_are_answered_in_order"), "AP-15": (API, "AP_15_quota_of_a_key"),
    "AP-17": (API, "AP_17_health_and_metrics_name_nobody"), "PX-01": (PROXY, "a_request_is_passed_on_and_recorded"),
    "PX-02": (PROXY, "a_request_is_passed_on_and_recorded"), "PX-04": (PROXY, "PX_04_wildcards_fit_one_label"),
    "PX-05": (PROXY, "socks_by_address_and_its_refusals"), "PX-06": (PROXY, "PX_07_the_checked_address_is_connected_to"),
    "PX-07": ("egress/test_egress_names.py", "a_name_is_resolved_by_DNS"), "PX-08": (TLS, "a_request_in_opened_tls"),
    "PX-09": (PROXY, "requests_of_one_connection_use_one_upstream"), "PX-10": (TLS, "PX_10_only_http_1_1_is_offered"),
    "PX-11": (SMUGGLING, "PX_11_one_request_upstream_for_each"), "PX-12": (PROXY, "a_real_client_by_each_way"),
    "PX-13": (TLS, "a_credential_is_added_to_its_host"), "PX-14": (OPENED, "real_clients_get_the_answer_and_not_the_secret"),
    "PX-15": (PROXY, "two_hosts_by_one_connection"), "PX-16": (TLS, "a_request_in_opened_tls"),
    "PX-17": (TLS, "a_credential_is_added_to_its_host"), "PX-19": (PROXY, "PX_19_who_asks_is_which_listener"),
    "PX-20": ("egress/test_egress_control.py", "PX_20_tunnels_that_the_new_policy_denies_are_cut"),
    "PX-21": (LIMITS, "a_thousand_tunnels_at_once"), "PX-22": (PROXY, "a_tunnel_relays_both_ways"),
    "PX-23": (OPENED, "PX_23_the_secret_is_in_locked_memory_only_and_in_no_text"),
    "PX-24": ("integration/test_policy.py", "PX_24_warning_on_stderr"), "PX-25": (TLS, "PX_25_websocket_is_refused_unless_a_rule_says_so"),
}


def test_controls_are_there():
    """Where CONTROLS points; and it names nothing that is not tested."""
    files = texts()
    gone = {i for i, (file, name) in CONTROLS.items() if f"test_{name}" not in names_in(files[file])}
    assert not gone and not set(CONTROLS) - ids_tested(), (gone, set(CONTROLS) - ids_tested())


def test_every_attack_has_a_control():
    """A test that fails everywhere proves nothing: each id with a test function of its own has one named ..._control, a
    row of Attack (which brings its own), a line in CONTROLS, or is in WITHOUT with the reason."""
    without = {
        "CP-05": "the clocks are compared with each other", "OU-04": "exact counts", "OU-05": "exact bytes", "OU-07": "exact lines",
        "OU-09": "exact counts", "OU-12": "exact form", "ME-08": "the refusal is the test", "ME-10": "both halves are asserted",
        "DK-08": "sizes before and after", "KS-22": "it must work", "IN-08": "no denial", "IN-12": "no denial",
        "RE-06": "tests/integration kills 200 and counts; here the canaries stand by", "RE-08": "statistics",
        "FS-26": "the naive reader of the same test", "AP-18": "a list; what a harness promises is in the harness", "ME-07": "the peer is the test", "CP-09": "the peer is the test",
    }
    controlled = set(CONTROLS)
    for text in texts().values():
        controlled |= {i for name in names_in(text) if name.endswith("_control") for i in ids_in(name)}
        controlled |= set(re.findall(r'^    Attack\("([A-Z]{2}-\d{2})"', text, re.M))
    missing = ids_tested() - controlled - set(without)
    assert not missing, f"no positive control: {sorted(missing)}"
