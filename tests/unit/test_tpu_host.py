"""What sysfs, /dev, /proc and the metadata server tell, on hosts of each generation."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from collectors.dial import Address
from collectors.tpu import presence
from collectors.tpu.chips import find_chips, nodes_present, on_bus, pci_link
from collectors.tpu.endpoints import find_groups
from collectors.tpu.metadata import instance_id
from collectors.tpu.owners import OwnerWatch, addresses
from collectors.tpu.runtime import Group
from tests.fakes.tpu.host import GOOGLE, Host, add_chips, make_host
from tests.grpc_servers import tcp_server


@pytest.mark.parametrize(
    ("kind", "count", "names"),
    [
        ("v2", 4, ["accel0", "accel1", "accel2", "accel3"]),
        ("v3", 4, ["accel0", "accel1", "accel2", "accel3"]),
        ("v4", 4, ["accel0", "accel1", "accel2", "accel3"]),
        ("v5e", 8, [str(n) for n in range(8)]),
        ("v5p", 4, ["0", "1", "2", "3"]),
        ("v6e", 4, ["0", "1", "2", "3"]),
    ],
)
def test_chips_are_listed_in_the_order_of_their_device_nodes(
    tmp_path: Path, kind: str, count: int, names: list[str]
) -> None:
    host = make_host(tmp_path)
    add_chips(host, kind, count)
    chips = find_chips(host.paths)
    assert [chip.device_name for chip in chips] == names
    assert [chip.index for chip in chips] == list(range(count))
    assert {chip.generation.name for chip in chips} == {kind}
    # The bus is in the other order.
    assert [chip.pci_bus_id for chip in chips] == sorted((chip.pci_bus_id for chip in chips), reverse=True)


def test_groups_of_an_iommu_are_ordered_as_numbers(tmp_path: Path) -> None:
    host = make_host(tmp_path)
    add_chips(host, "v6e", 4, first=8)
    assert [chip.device_name for chip in find_chips(host.paths)] == ["8", "9", "10", "11"]


def test_two_functions_in_one_slot_are_one_chip_of_7x(tmp_path: Path) -> None:
    host = make_host(tmp_path)
    add_chips(host, "7x", 4)
    chips = find_chips(host.paths)
    assert [chip.slot for chip in chips] == ["0000:c0:02", "0000:c1:02", "0000:c2:02", "0000:c3:02"]
    assert chips[0].functions == ("0000:c0:02.0", "0000:c0:02.1")
    assert chips[1].nodes == ("vfio/2", "vfio/3")
    assert [chip.numa_node for chip in chips] == ["0", "0", "1", "1"]


def test_7x_is_ordered_by_numa_node_before_slot(tmp_path: Path) -> None:
    host = make_host(tmp_path)
    for slot, numa in (("0000:01:00", "1"), ("0000:02:00", "0")):
        for function in (0, 1):
            host.function(
                f"{slot}.{function}", vendor=GOOGLE, device="0x0076", subsystem_device="0x0000", numa_node=numa
            )
    assert [chip.slot for chip in find_chips(host.paths)] == ["0000:02:00", "0000:01:00"]


def test_a_host_without_chips_or_without_a_bus_has_none(tmp_path: Path) -> None:
    host = make_host(tmp_path)
    assert find_chips(host.paths) == ()
    assert find_chips(Host(tmp_path / "nowhere").paths) == ()


def test_a_chip_without_device_nodes_is_there_all_the_same(tmp_path: Path) -> None:
    host = make_host(tmp_path)
    host.function("0000:00:05.0", vendor=GOOGLE, device="0x005e", subsystem_device="0x0000", numa_node="-1")
    [chip] = find_chips(host.paths)
    assert (chip.nodes, chip.device_name, chip.numa_node) == ((), "", "")
    assert nodes_present(host.paths, [chip]) == {}


def test_a_device_node_that_is_gone_is_told_and_a_foreign_dev_is_not_taken_for_that(tmp_path: Path) -> None:
    host = make_host(tmp_path)
    nodes = add_chips(host, "7x", 2)
    chips = find_chips(host.paths)
    assert nodes_present(host.paths, chips) == {0: True, 1: True}
    (host.root / "dev" / nodes[3]).unlink()
    assert nodes_present(host.paths, chips) == {0: True, 1: False}
    for node in nodes[:3]:
        (host.root / "dev" / node).unlink()
    assert nodes_present(host.paths, chips) == {}


def test_a_chip_that_left_the_bus_is_noticed(tmp_path: Path) -> None:
    host = make_host(tmp_path)
    add_chips(host, "v5p", 1)
    [chip] = find_chips(host.paths)
    assert on_bus(host.paths, chip)
    folder = host.root / "sys/bus/pci/devices" / chip.pci_bus_id
    folder.rename(folder.with_name("gone"))
    assert not on_bus(host.paths, chip)


def test_the_pci_link_is_told_where_the_machine_shows_it(tmp_path: Path) -> None:
    host = make_host(tmp_path)
    add_chips(host, "v6e", 1, link=True)
    [chip] = find_chips(host.paths)
    assert pci_link(host.paths, chip) == {
        "tpu_pci_link_width": 16, "tpu_pci_link_max_width": 16,
        "tpu_pci_link_generation": 4, "tpu_pci_link_max_generation": 5,
    }  # fmt: skip
    folder = host.root / "sys/bus/pci/devices" / chip.pci_bus_id
    (folder / "current_link_width").write_text("0\n")
    (folder / "max_link_width").write_text("255\n")
    (folder / "current_link_speed").write_text("Unknown\n")
    (folder / "max_link_speed").unlink()
    assert pci_link(host.paths, chip) == {}


def nodes_of(host: Host) -> frozenset[str]:
    return frozenset(node for chip in find_chips(host.paths) for node in chip.nodes)


def test_owners_are_found_by_what_they_hold(tmp_path: Path) -> None:
    host = make_host(tmp_path)
    add_chips(host, "v6e", 4)
    host.process(100, ["vfio/0", "vfio/1", "vfio/vfio"])
    host.process(101, ["vfio/1", "vfio/77"])
    chips = find_chips(host.paths)
    owners = OwnerWatch(host.paths.proc).look(nodes_of(host))
    assert owners.complete
    assert [len(presence.holders(chip, owners)) for chip in chips] == [1, 2, 0, 0]
    assert [chip.index for chip in presence.idle(chips, owners)] == [2, 3]


def test_without_the_hosts_process_ids_nothing_is_certain(tmp_path: Path) -> None:
    host = make_host(tmp_path, hostpid=False)
    add_chips(host, "v4", 1)
    chips = find_chips(host.paths)
    owners = OwnerWatch(host.paths.proc).look(nodes_of(host))
    assert not owners.complete
    assert presence.idle(chips, owners) == []
    wanted = frozenset(("tpu_processes",))
    assert list(presence.read(host.paths, chips, owners, wanted)) == []


def test_an_owner_that_ends_between_two_looks_is_noticed_at_once(tmp_path: Path) -> None:
    host = make_host(tmp_path)
    add_chips(host, "v4", 1)
    process = host.process(100, ["accel0"])
    watch = OwnerWatch(host.paths.proc)
    nodes = nodes_of(host)
    assert watch.look(nodes).pids == {"accel0": {100}}
    process.rename(process.with_name("gone"))
    assert watch.look(nodes).pids == {}


def ports(*numbers: int, host: str = "localhost") -> tuple[Address, ...]:
    return tuple(Address(host=host, port=number) for number in numbers)


def groups(host: Host, environ: dict[str, str] | None = None, told: tuple[Address, ...] = ()) -> tuple[Group, ...]:
    chips = find_chips(host.paths)
    owners = OwnerWatch(host.paths.proc).look(nodes_of(host))
    return find_groups(host.paths.proc, chips, owners, told, environ or {})


@pytest.mark.parametrize(
    ("kind", "count", "last"), [("v6e", 1, 8431), ("v6e", 4, 8434), ("v5e", 8, 8438), ("7x", 4, 8438), ("7x", 1, 8432)]
)
def test_the_usual_ports_are_as_many_as_the_runtimes_devices(tmp_path: Path, kind: str, count: int, last: int) -> None:
    host = make_host(tmp_path, hostpid=False)
    add_chips(host, kind, count)
    assert groups(host) == (Group(ports(*range(8431, last + 1)), tuple(range(count))),)


def test_our_own_environment_may_name_the_ports(tmp_path: Path) -> None:
    host = make_host(tmp_path, hostpid=False)
    add_chips(host, "v6e", 2)
    for text, expected in (("9000,9001", ports(9000, 9001)), ("x,0,,70000", ports(8431, 8432))):
        assert groups(host, {"TPU_RUNTIME_METRICS_PORTS": text}) == (Group(expected, (0, 1)),)


def test_where_nobody_holds_a_chip_nobody_is_asked(tmp_path: Path) -> None:
    host = make_host(tmp_path)
    add_chips(host, "v6e", 4)
    assert groups(host) == ()


def test_two_pods_of_a_7x_host_are_met_at_their_own_addresses(tmp_path: Path) -> None:
    host = make_host(tmp_path)
    add_chips(host, "7x", 4)
    names = {"TPU_RUNTIME_METRICS_PORTS": "8431,8432"}
    host.process(100, ["vfio/0", "vfio/1"], names, "net:[2]", ["10.8.0.5"])
    host.process(101, ["vfio/2", "vfio/3"], names, "net:[2]", ["10.8.0.5"])
    host.process(200, ["vfio/4", "vfio/5", "vfio/6", "vfio/7"], {}, "net:[3]", ["10.8.0.6", "169.254.1.1"])
    assert groups(host) == (
        Group(ports(8431, 8432, host="10.8.0.5"), (0, 1)),
        Group(ports(8431, 8432, 8433, 8434, host="10.8.0.6"), (2, 3)),
    )
    told = ports(8431, host="10.8.0.6")
    assert groups(host, told=told) == (Group(told, (2, 3)),)
    told = ports(8431, host="10.8.0.9")
    assert groups(host, told=told) == (Group(told, (0, 1, 2, 3)),)


def test_a_workload_in_the_hosts_network_is_met_here_or_at_its_socket(tmp_path: Path) -> None:
    host = make_host(tmp_path)
    add_chips(host, "v4", 1)
    process = host.process(100, ["accel0"], {"TPU_RUNTIME_METRICS_ADDRESS": "localhost:9100"})
    assert groups(host) == (Group(ports(9100), (0,)),)
    (process / "environ").write_bytes(b"TPU_RUNTIME_METRICS_ADDRESS=unix:/tmp/metrics.sock\0")
    path = f"{host.paths.proc}/100/root" + "/tmp/metrics.sock"
    assert groups(host) == (Group((Address(path=path),), (0,)),)
    (process / "environ").write_bytes(b"TPU_RUNTIME_METRICS_ADDRESS=?\0")
    assert groups(host) == (Group(ports(8431), (0,)),)


def test_addresses_of_a_network_are_read_without_its_loopback(tmp_path: Path) -> None:
    host = make_host(tmp_path)
    process = host.process(7, addresses=["10.0.0.1", "10.0.0.2"])
    (process / "net/if_inet6").write_text(
        "fd000000000000000000000000000005 02 40 00 80     eth0\n00000000000000000000000000000001 01 80 10 80       lo\n"
    )
    assert addresses(host.paths.proc, 7) == ("10.0.0.1", "10.0.0.2", "fd00:0000:0000:0000:0000:0000:0000:0005")
    assert addresses(host.paths.proc, 8) == ()


def answering(answer: bytes) -> Callable[[socket.socket], None]:
    def serve(connection: socket.socket) -> None:
        request = connection.recv(4096)
        if b"Metadata-Flavor: Google\r\n" in request and request.startswith(b"GET /computeMetadata/v1/instance/id "):
            connection.sendall(answer)

    return serve


HEAD = b"HTTP/1.0 200 OK\r\nMetadata-Flavor: Google\r\nContent-Type: application/text\r\n\r\n"


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (HEAD + b"7402918374650192837", "7402918374650192837"),
        (HEAD + b"<html>captive portal</html>", ""),
        (HEAD + b"1" * 21, ""),
        (b"HTTP/1.0 200 OK\r\n\r\n123", ""),
        (b"HTTP/1.0 404 Not Found\r\nMetadata-Flavor: Google\r\n\r\n123", ""),
        (b"", ""),
        (HEAD + b"1\r\n" * 20_000, ""),
    ],
    ids=["the id", "no number", "too long", "not Google's", "not found", "nothing", "endless"],
)
def test_the_instances_id_is_taken_from_the_metadata_server_alone(answer: bytes, expected: str) -> None:
    with tcp_server(answering(answer)) as address:
        assert instance_id(2.0, {"GCE_METADATA_HOST": address}) == expected


def test_without_a_metadata_server_there_is_no_id() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert instance_id(1.0, {"GCE_METADATA_HOST": f"127.0.0.1:{port}"}) == ""
