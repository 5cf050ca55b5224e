"""Neuron's tables against neuron-monitor-prometheus.py, the driver's files and AWS's public dashboards."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

import collectors
from collectors.base import Device, HostPaths, Labels
from collectors.neuron import facts, files, sysfs, tally
from collectors.neuron.faults import CODES
from exporter.catalogue import Catalogue, load
from exporter.detection import PciDevice, present
from exporter.model import Key
from exporter.normalize import holds, make_plan
from exporter.tables import tables
from tests.simulated_rig import Rig

FOLDER = Path(collectors.__file__).parent / "neuron"
INSTANCE = ("availability_zone", "instance_id", "instance_name", "instance_type", "region", "subnet_id")

# Name → type, unit, labels beyond the instance's, help: as the script has them.
SCRIPT: Mapping[str, tuple[str, str, tuple[str, ...], str]] = {
    "neuroncore_utilization_ratio": ("gauge", "ratio", ("neuroncore", "runtime_tag"), "NeuronCore utilization ratio"),
    "neuron_runtime_vcpu_usage_ratio": (
        "gauge", "ratio", ("runtime_tag", "usage_type"), "Runtime vCPU utilization ratio",
    ),
    "neuron_runtime_memory_used_bytes": (
        "gauge", "bytes", ("memory_location", "runtime_tag"), "Runtime memory used bytes",
    ),
    **{
        f"neuroncore_memory_usage_{name}": (
            "gauge", "bytes", ("memory_location", "neuroncore", "runtime_tag"),
            f"NeuronCore memory utilization for {name}",
        )
        for name in ("constants", "model_code", "model_shared_scratchpad", "runtime_memory", "tensors")
    },
    "execution_errors_total": ("counter", "", ("error_type", "runtime_tag"), "Execution errors total"),
    "execution_status_total": ("counter", "", ("runtime_tag", "status_type"), "Execution status total"),
    "execution_latency_seconds": ("gauge", "seconds", ("percentile", "runtime_tag"), "Execution latency in seconds"),
    "hardware_ecc_events_total": ("counter", "", ("event_type", "neuron_device_index"), "Hardware ecc events total"),
    "system_vcpu_count": ("gauge", "", (), "System vCPU count"),
    "system_vcpu_usage_ratio": ("gauge", "ratio", ("usage_type",), "System CPU utilization ratio"),
    **{
        f"system_{name}": ("gauge", "bytes", (), f"System {name.replace('_', ' ', 1)} bytes")
        for name in ("memory_total_bytes", "memory_used_bytes", "swap_total_bytes", "swap_used_bytes")
    },
    "instance_info": ("gauge", "", (), "EC2 instance information"),
    "neuron_hardware_info": (
        "gauge", "",
        ("neuron_device_count", "neuron_device_memory_size", "neuroncore_per_device_count"),
        "Neuron Hardware Information",
    ),
}  # fmt: skip


def names(text: str) -> list[str]:
    return text.split()


CREATED = ("execution_errors_created", "execution_status_created", "hardware_ecc_events_created")

QUERIED = names(
    """
    neuron_runtime_memory_used_bytes neuroncore_utilization_ratio execution_latency_seconds
    neuron_runtime_vcpu_usage_ratio system_vcpu_usage_ratio system_memory_used_bytes system_memory_total_bytes
    instance_info system_vcpu_count execution_status_total execution_errors_total hardware_ecc_events_total
    neuroncore_memory_usage_constants neuroncore_memory_usage_model_code neuroncore_memory_usage_tensors
    neuroncore_memory_usage_model_shared_scratchpad neuroncore_memory_usage_runtime_memory
    """
)
"""By the dashboards of aws-neuron-sdk, aws-observability-accelerator and the EKS starter kit."""

WHOLE = Device(uuid="19fcda00f5ff6e00", index="0")
CORE = Device(uuid="19fcda00f5ff6e00", index="0", partition="1")
Raw = tuple[str, float, Labels]


@pytest.fixture(scope="module")
def neuron() -> Catalogue:
    return load(FOLDER, "collectors.neuron")


def common(catalogue: Catalogue, rows: Sequence[Raw], device: int = 1) -> dict[tuple[str, ...], float]:
    """What raw series of one device become: metric and label values → value."""
    layout = tuple(Key(name, device, labels) for name, _, labels in rows)
    plan = make_plan(catalogue, (WHOLE, CORE), {"normal": layout})
    values = [value for _, value, _ in rows]
    return {(out.id.metric, *(value for _, value in out.id.labels)): out.evaluate(values) for out in plan.outputs}


def feeders(catalogue: Catalogue, metric: str, **labels: str) -> list[str]:
    """The series that feed a common series, the preferred one first."""
    found = [
        series.name
        for series in catalogue.series.values()
        for feed in series.feeds
        if feed.metric == metric and labels.items() <= feed.labels.items()
    ]
    return list(dict.fromkeys(found))


def test_the_scripts_series_are_there_with_its_types_labels_and_help(neuron: Catalogue) -> None:
    found = {
        name: (series.type, series.unit, tuple(x for x in series.labels if x not in neuron.identity), series.help)
        for name, series in neuron.series.items()
        if not series.own and name not in CREATED
    }
    assert found == SCRIPT


def test_exactly_the_scripts_series_are_on_by_default(neuron: Catalogue) -> None:
    assert {name for name, series in neuron.series.items() if series.default} == set(SCRIPT)


def test_the_instances_labels_are_the_identity_or_stand_on_the_series_of_the_node(neuron: Catalogue) -> None:
    assert neuron.identity == (*INSTANCE, "ultraserver_id")
    for series in neuron.series.values():
        if series.level == "node" and not series.own:
            assert series.labels[: len(neuron.identity)] == neuron.identity, series.name


def test_every_name_that_public_dashboards_query_exists(neuron: Catalogue) -> None:
    assert [name for name in QUERIED if name not in neuron.series] == []


def test_names_of_our_own_cannot_be_taken_for_the_scripts(neuron: Catalogue) -> None:
    own = [name for name, series in neuron.series.items() if series.own]
    begins = names(
        "neuron_core_ neuron_physical_ neuron_device_ neuron_process_ neuron_sysfs_ neuron_monitor_ neuron_pcie_"
    )
    assert all(name.startswith(tuple(begins)) for name in own)
    assert not any(neuron.series[name].default for name in own)


def test_names_of_inf1s_old_script_lead_to_the_series(neuron: Catalogue) -> None:
    for kind in ("errors_total", "status_total", "latency_seconds"):
        assert neuron.aliases[f"inference_{kind}"] == f"execution_{kind}"


def test_the_collector_reads_exactly_the_series_that_are_called_native(neuron: Catalogue) -> None:
    native = {name for name, series in neuron.series.items() if series.native}
    kinds = names("fact ecc health health_count power host memory peak core_host status pe")
    slots = [sysfs.Slot(kind, name) for kind in kinds for name in ("", "unhealthy_components", "x")]
    slots += [sysfs.Slot("count", name) for name in sysfs.COUNTS]
    read = set().union(*(files.series_of(slot) for slot in slots)) | tally.SERIES | facts.SERIES
    read |= {"neuron_monitor_restarts_total", "neuron_monitor_malformed_total"}
    assert native == read
    assert {name for name in neuron.series if name not in native} == set(CREATED)


@pytest.mark.parametrize(
    ("metric", "labels", "order"),
    [
        ("accel_utilization_ratio", {}, "neuron_core_utilization_ratio neuroncore_utilization_ratio"),
        ("accel_compute_active_ratio", {}, "neuron_core_utilization_ratio neuroncore_utilization_ratio"),
        ("accel_flops_per_second", {}, "neuron_core_effective_flops_per_second neuron_core_flops_per_second"),
        (
            "accel_memory_used_bytes",
            {"memory": "device"},
            "neuron_sysfs_core_device_memory_used_bytes neuron_core_memory_used_bytes",
        ),
        (
            "accel_memory_errors_total",
            {"correctable": "false", "location": "hbm"},
            "neuron_sysfs_ecc_events_total neuron_monitor_ecc_events_total hardware_ecc_events_total",
        ),
        ("accel_execution_errors_total", {}, "neuron_sysfs_core_status_total"),
        ("accel_memory_category_bytes", {"category": "tensors"}, "neuroncore_memory_usage_tensors"),
    ],
)
def test_the_preferred_source_comes_first(
    neuron: Catalogue, metric: str, labels: Mapping[str, str], order: str
) -> None:
    assert feeders(neuron, metric, **labels) == order.split()


def test_foreign_zeros_do_not_lower_a_cores_utilization(neuron: Catalogue) -> None:
    rows = [
        ("neuroncore_utilization_ratio", value, (("neuroncore", "1"), ("runtime_tag", tag)))
        for tag, value in (("535", 0.0), ("538", 0.425), ("539", 0.0))
    ]
    assert common(neuron, rows) == {("accel_utilization_ratio",): 0.425, ("accel_compute_active_ratio",): 0.425}


def test_no_share_of_time_is_more_than_the_whole(neuron: Catalogue) -> None:
    rows = [
        ("neuroncore_utilization_ratio", value, (("neuroncore", "1"), ("runtime_tag", tag)))
        for tag, value in (("535", 0.2), ("538", 1.003))
    ]
    assert set(common(neuron, rows).values()) == {1}


def test_memory_of_a_category_is_the_sum_over_runtimes(neuron: Catalogue) -> None:
    rows = [
        (
            "neuroncore_memory_usage_tensors",
            value,
            (("memory_location", "None"), ("neuroncore", "1"), ("runtime_tag", tag)),
        )
        for tag, value in (("535", 1000), ("538", 24))
    ]
    assert common(neuron, rows) == {("accel_memory_category_bytes", "device", "tensors"): 1024}


def test_a_logical_core_has_the_memory_of_its_physical_ones(neuron: Catalogue) -> None:
    rows = [
        ("neuron_sysfs_core_device_memory_used_bytes", value, (("neuron_device_index", "0"), ("neuron_core", core)))
        for core, value in (("2", 5), ("3", 7))
    ]
    assert common(neuron, rows) == {("accel_memory_used_bytes", "device"): 12}


def test_uncorrected_hbm_events_are_summed_over_both_files_and_the_rest_kept_apart(neuron: Catalogue) -> None:
    numbers = {
        "mem_ecc_uncorrected": 3, "mem_ecc_repairable_uncorrected": 2, "sram_ecc_uncorrected": 1,
        "mem_ecc_corrected": 70, "sram_ecc_corrected": 7,
    }  # fmt: skip
    rows = [
        ("neuron_sysfs_ecc_events_total", value, (("neuron_device_index", "0"), ("event_type", event)))
        for event, value in numbers.items()
    ]
    metric = "accel_memory_errors_total"
    assert common(neuron, rows, device=0) == {
        (metric, "false", "hbm"): 5,
        (metric, "false", "sram"): 1,
        (metric, "true", "hbm"): 70,
        (metric, "true", "sram"): 7,
    }


def test_statuses_become_errors_but_for_success_and_failure(neuron: Catalogue) -> None:
    rows = [
        ("neuron_sysfs_core_status_total", 4, (("neuron_device_index", "0"), ("neuron_core", "0"), ("status", status)))
        for status in sorted(sysfs.STATUSES)
    ]
    found = common(neuron, rows)
    assert {key[1] for key in found} == sysfs.STATUSES - {"success", "failure"}
    assert set(found.values()) == {4}


def test_power_percent_feeds_nothing_and_nothing_feeds_power_temperature_or_clocks(neuron: Catalogue) -> None:
    assert neuron.series["neuron_sysfs_power_utilization_percent"].feeds == ()
    assert neuron.series["neuron_sysfs_power_utilization_percent"].unit == "percent"
    fed = {feed.metric for series in neuron.series.values() for feed in series.feeds}
    missing = names("watts energy celsius clock throttle interconnect fan voltage")
    assert not any(word in metric for metric in fed for word in missing)


def test_what_is_no_plain_reading_is_not_called_exact(neuron: Catalogue) -> None:
    expected = {
        "neuron_core_matrix_active_ratio": "estimated",
        "neuron_core_memory_used_bytes": "approximate",
        "neuron_core_processes": "derived",
        "neuron_device_execution_latency_seconds": "derived",
        "neuron_monitor_ecc_events_total": "approximate",
        "hardware_ecc_events_total": "approximate",
        "neuron_sysfs_core_status_total": "approximate",
    }
    found = {
        name: feed.exactness
        for name, series in neuron.series.items()
        for feed in series.feeds
        if feed.exactness != "exact"
    }
    assert found == expected


def pci(device: str, driver: str = "") -> PciDevice:
    return PciDevice("0000:a0:1b.0", "0x1d0f", device, "0x120000", driver, False)


@pytest.mark.parametrize("device", ["0x7064", "0x7065", "0x7066", "0x7067", "0x7164", "0x7264", "0x7364"])
def test_every_published_pci_id_is_known(neuron: Catalogue, device: str) -> None:
    assert present(neuron.collector.detect, [pci(device)]) == 1


def test_a_device_of_unknown_id_is_known_by_its_driver_and_a_network_card_is_not(neuron: Catalogue) -> None:
    bus = [pci("0x9999", "neuron-driver"), pci("0xec20", "ena"), pci("0xefa2", "efa"), pci("0x8061", "nvme")]
    assert present(neuron.collector.detect, bus) == 1


def test_an_unhealthy_component_degrades_a_device(neuron: Catalogue) -> None:
    [rule] = neuron.collector.health
    assert rule.series == "neuron_sysfs_health_component_unhealthy"
    assert [rule.state for value in (0, 1) if holds(rule, value)] == ["degraded"]


def test_faults_have_the_severity_and_action_of_awss_guide(neuron: Catalogue) -> None:
    known = {code: (fault.severity, fault.action) for code, fault in neuron.faults.items()}
    assert known == {
        "neuron:HBM_UNCORRECTABLE_ERROR": ("fatal", "replace"),
        "neuron:SRAM_UNCORRECTABLE_ERROR": ("fatal", "replace"),
        "neuron:NC_UNCORRECTABLE_ERROR": ("fatal", "replace"),
        "neuron:DMA_ERROR": ("fatal", "replace"),
        "neuron:HANG_ON_COLLECTIVES": ("degraded", "restart_workload"),
        "nrt:1205": ("degraded", "reboot_node"),
    }
    assert set(CODES.values()) <= set(known)


def test_the_same_id_is_a_core_or_a_device_by_the_resource(neuron: Catalogue) -> None:
    by_resource = {resource: rule.pattern for rule in neuron.collector.attribution.ids for resource in rule.resources}
    assert set(by_resource) == set(neuron.collector.attribution.resources)
    assert by_resource["aws.amazon.com/neuroncore"] == r"(?P<neuroncore>\d+)"
    assert by_resource["aws.amazon.com/neuron"] == by_resource["aws.amazon.com/neurondevice"] == r"(?P<index>\d+)"
    assert [rule.driver for rule in neuron.collector.attribution.dra] == ["neuron.aws.com"]


def test_the_simulation_names_series_that_exist(neuron: Catalogue) -> None:
    simulation = tomllib.loads((FOLDER / "simulation.toml").read_text())
    assert tuple(simulation["raw_labels"]) == neuron.identity
    assert set(simulation["values"]) <= set(neuron.series)


def test_detection_finds_no_sign_on_a_bare_host(neuron: Catalogue, tmp_path: Path) -> None:
    from exporter.detection import signs

    paths = HostPaths(sys=str(tmp_path), dev=str(tmp_path), proc=str(tmp_path))
    assert list(signs(neuron.collector.detect, paths, [pci("0xec20", "ena")], {})) == []


def test_a_simulated_node_has_every_kind_of_status_error_and_ecc_event(neuron: Catalogue) -> None:
    simulation = tomllib.loads((FOLDER / "simulation.toml").read_text())
    found, _ = Rig({**tables(neuron), "simulation": simulation}, devices=2, scenarios=["training"]).at(100)

    def values(series: str, label: str) -> set[str]:
        return {dict(labels)[label] for name, _, labels in found if name == series}

    assert len(values("execution_status_total", "status_type")) == 6
    assert len(values("execution_errors_total", "error_type")) == 6
    assert len(values("hardware_ecc_events_total", "event_type")) == 4
    assert values("neuroncore_utilization_ratio", "neuroncore") == {"0", "1"}
    assert values("neuroncore_memory_usage_tensors", "memory_location") == {"None"}
    assert values("neuron_runtime_memory_used_bytes", "memory_location") == {"host", "neuron_device"}


def test_a_simulated_trn1_has_nothing_that_only_trainium2_tells(neuron: Catalogue) -> None:
    simulation = tomllib.loads((FOLDER / "simulation.toml").read_text())
    found, _ = Rig({**tables(neuron), "simulation": simulation}, devices=2, scenarios=["training"]).at(100)
    assert not {
        "neuron_physical_core_utilization_ratio",
        "neuron_sysfs_health_component_unhealthy",
        "neuron_sysfs_healthcheck_heartbeat",
    } & {name for name, _, _ in found}
    categories = {
        dict(labels)["category"] for name, _, labels in found if name == "neuron_sysfs_host_memory_category_bytes"
    }
    assert categories == set(
        names("application_memory constants dma_buffers dma_rings driver_memory notifications tensors uncategorized")
    )
