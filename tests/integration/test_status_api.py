"""The JSON API over real sockets: what it tells of a running agent, that it is as documented, what it never tells."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from jsonschema import Draft202012Validator

from exporter.config import CollectorConfig
from exporter.config.attribution import StaticOwner
from exporter.config.collectors import Bridge
from exporter.families import parse_labels
from exporter.status import openapi
from exporter.status.model import Devices, History, Mapped, Settings, Status
from tests.serving import Answer, get
from tests.status_stage import Scene, hanging, scene, until, world

Story = Callable[[Scene], Coroutine[Any, Any, None]]
DOCUMENT: Final[dict[str, Any]] = json.loads(openapi.DOCUMENT.read_text())
PATHS = sorted(DOCUMENT["paths"])


def play(folder: Path, what: dict[str, Any], story: Story, **options: Any) -> None:
    async def run() -> None:
        async with scene(folder, what, **options) as here:
            await story(here)

    asyncio.run(asyncio.wait_for(run(), 60))


async def ask(here: Scene, target: str, *headers: str, method: str = "GET") -> Answer:
    return await get(here.server.addresses[0], target, *headers, method=method)


async def devices(here: Scene) -> Devices:
    return msgspec.json.decode((await ask(here, "/api/v1/devices")).body, type=Devices)


async def status(here: Scene) -> Status:
    return msgspec.json.decode((await ask(here, "/api/v1/status")).body, type=Status)


def problems(path: str, answer: object) -> list[str]:
    """What of an answer is not as the document says."""
    schema = DOCUMENT["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    validator = Draft202012Validator({**schema, "components": DOCUMENT["components"]})
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(answer)]


# The document


def test_the_document_is_up_to_date() -> None:
    assert openapi.DOCUMENT.read_text() == openapi.text(), "run `python -m exporter.status.openapi`"


def test_the_document_is_sound() -> None:
    """What OpenAPI asks beyond JSON: schemas are schemas, references lead somewhere, operations have names."""
    assert DOCUMENT["openapi"].startswith("3.1.")
    schemas = DOCUMENT["components"]["schemas"]
    for schema in schemas.values():
        Draft202012Validator.check_schema(schema)
    references = set(_references(DOCUMENT))
    assert references == {f"#/components/schemas/{name}" for name in schemas}
    operations = [operation for path in DOCUMENT["paths"].values() for operation in path.values()]
    assert all(set(path) == {"get"} for path in DOCUMENT["paths"].values())
    assert len({operation["operationId"] for operation in operations}) == len(operations)
    assert all(response["description"] for operation in operations for response in operation["responses"].values())
    parameters = [parameter for operation in operations for parameter in operation["parameters"]]
    assert {(each["name"], each["in"]) for each in parameters} == {("since", "query"), ("collector", "query")}


def _references(value: object) -> list[str]:
    if isinstance(value, dict):
        own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
        return own + [found for inner in value.values() for found in _references(inner)]
    return [found for inner in value for found in _references(inner)] if isinstance(value, list) else []


def test_every_answer_is_as_documented(tmp_path: Path) -> None:
    what = world(faults=[[0, "acme:7", 1.0]], errors=[[0, "permission", "/dev/acme0 is not readable"]])
    owners = (StaticOwner(devices=("0",), namespace="ns", pod="p", tenant="t"),)

    async def story(here: Scene) -> None:
        await until(lambda: len(here.monitor.recorded.times()) > 1)
        for path in PATHS:
            answer = await ask(here, path)
            assert (answer.status, answer.headers["content-type"]) == (200, "application/json"), path
            assert answer.headers["cache-control"] == "no-store"
            assert problems(path, json.loads(answer.body)) == [], path
        served = await ask(here, "/api/v1/openapi.json")
        assert served.body == openapi.DOCUMENT.read_bytes()
        assert served.headers["etag"]

    play(tmp_path, what, story, owners=owners)


def test_an_answer_that_is_not_as_documented_would_be_found() -> None:
    good = {"now": 1.0, "version": 1, "devices": [], "counts": [], "sources": []}
    assert problems("/api/v1/devices", good) == []
    assert problems("/api/v1/devices", {**good, "version": "1"}) != []
    assert problems("/api/v1/devices", {**good, "devices": [{"vendor": "acme"}]}) != []


# What it tells


def test_a_device_is_told_with_all_that_is_known_of_it(tmp_path: Path) -> None:
    owner = StaticOwner(devices=("0",), namespace="ns", pod="p", job_name="j", tenant="t")
    what = world(1)
    what["devices"][0] |= {"serial": "S1", "kind": "npu", "driver_version": "1.2"}
    what["readings"]["normal"].append(["acme_state_bits", 0, 1, []])

    async def story(here: Scene) -> None:
        answer = await devices(here)
        [device] = answer.devices
        assert (device.vendor, device.device, device.uuid, device.model) == ("acme", "0", "ACME-0", "A1")
        assert (device.serial, device.kind, device.driver_version) == ("S1", "npu", "1.2")
        assert (device.utilization_ratio, device.power_watts) == (0.40, 250)
        assert (device.memory_used_bytes, device.memory_total_bytes) == (2**30, 64 * 2**30)
        assert (device.temperature_celsius, device.temperature_sensor) == (50, "die")
        # What Acme does not tell is left out, and no zero.
        assert (device.compute_active_ratio, device.power_limit_watts) == (None, None)
        assert b"compute_active_ratio" not in (await ask(here, "/api/v1/devices")).body
        assert (device.health, device.reasons, device.stale) == ("healthy", (), False)
        assert device.throttling == ("power_cap",)
        assert device.allocated
        [workload] = device.workloads
        assert (workload.namespace, workload.pod, workload.job_name, workload.tenant) == ("ns", "p", "j", "t")
        assert workload.share == "exclusive"
        assert device.sampled_at is not None
        assert 0 <= answer.now - device.sampled_at < 20
        found = {each.metric: (each.source, each.exactness) for each in answer.sources}
        assert found["accel_utilization_ratio"] == ("acme_load_percent", "exact")
        [count] = answer.counts
        assert (count.vendor, count.reporting, count.expected) == ("acme", 1, 1)

    play(tmp_path, what, story, owners=[owner])


def test_why_a_device_is_not_healthy_is_told_in_words(tmp_path: Path) -> None:
    now = time.time()
    what = world(3, faults=[[0, "acme:7", now], [0, "acme:3", now - 9e4], [1, "acme:1", now]], lost=[2])
    what["readings"]["slow"].append(["acme_repair_failed", 0, 1, []])

    async def story(here: Scene) -> None:
        first, second, third = (await devices(here)).devices
        assert first.health == "failed"
        assert first.reasons == ("memory repair failed", "core halted (acme:7, fatal)")
        assert "reset_device" in first.recovery_actions
        fault, older = first.faults
        assert older.code == "acme:3"
        assert (fault.code, fault.name, fault.fault_class, fault.action) == (
            "acme:7",
            "core halted",
            "compute",
            "reset_device",
        )
        assert fault.count >= 1
        # A fault that says nothing about health is listed, and is no reason.
        assert (second.health, second.reasons) == ("healthy", ())
        assert second.faults[0].code == "acme:1"
        assert (third.health, third.reasons) == ("failed", ("does not answer",))
        assert third.power_watts is None

    play(tmp_path, what, story)


def test_parts_are_under_their_whole_and_their_faults_among_its_reasons(tmp_path: Path) -> None:
    what = world(1)
    what["devices"] += [{"uuid": "ACME-0", "index": "0", "partition": f"half/{n}"} for n in (0, 1)]
    what["readings"]["normal"] += [["acme_load_percent", position, 10 * position, []] for position in (1, 2)]
    # The part says that it was long ago, and says so now.
    what["faults"] = [[2, "acme:3", 1.0]]

    async def story(here: Scene) -> None:
        [whole] = (await devices(here)).devices
        assert [part.partition for part in whole.parts] == ["half/0", "half/1"]
        assert [part.utilization_ratio for part in whole.parts] == [0.1, 0.2]
        assert whole.utilization_ratio is None
        assert [part.health for part in whole.parts] == [None, None]
        assert (whole.health, whole.reasons) == ("degraded", ("slow link (acme:3, degraded)",))

    play(tmp_path, what, story)


def test_a_collector_that_hangs_is_stale_and_its_devices_are_unknown(tmp_path: Path) -> None:
    async def story(here: Scene) -> None:
        here.set(hanging(world()))
        await until(lambda: here.agent.runners[0].state == "timeout")
        async with asyncio.timeout(20):
            while not (await devices(here)).devices[0].stale:
                await asyncio.sleep(0.05)
        [collector] = (await status(here)).collectors
        assert collector.stale == ("normal",)
        assert collector.age is not None
        assert collector.age > 0.5
        assert "look at the kernel's log" in collector.hint
        [first, second] = (await devices(here)).devices
        assert (first.health, first.reasons, first.power_watts) == ("unknown", ("no fresh sample",), None)
        assert second.sampled_at is not None

    play(tmp_path, world(), story, max_age_periods=5.0, deadline=1.0)


def test_the_agent_tells_how_it_is(tmp_path: Path) -> None:
    async def story(here: Scene) -> None:
        found = await status(here)
        assert (found.node, found.ready, found.healthy, found.simulated) == ("node-7", True, True, False)
        [collector] = found.collectors
        assert (collector.name, collector.title, collector.state, collector.devices) == (
            "acme", "Acme accelerators", "running", 2,
        )  # fmt: skip
        assert collector.series > 5
        [source] = found.attribution.sources
        assert (source.name, source.up) == ("static", True)
        assert found.attribution.unattributed == {"free": 1}
        assert 0 < found.started_at <= found.now

    play(tmp_path, world(), story, owners=[StaticOwner(devices=("0",), tenant="t")])


def test_history_is_told_from_where_one_has_it(tmp_path: Path) -> None:
    async def story(here: Scene) -> None:
        await until(lambda: len(here.monitor.recorded.times()) >= 3)
        first = msgspec.json.decode((await ask(here, "/api/v1/history")).body, type=History)
        assert first.period == 0.2
        assert [each.uuid for each in first.devices] == ["ACME-0", "ACME-1"]
        # A gap is a publication in which a busy machine's sample came late.
        assert set(first.devices[0].power_watts) - {None} == {250.0}
        assert len(first.devices[0].power_watts) == len(first.times) >= 3
        await until(lambda: here.monitor.recorded.times()[-1] > first.times[-1])
        since = f"/api/v1/history?since={first.times[-1]:.3f}"
        later = msgspec.json.decode((await ask(here, since)).body, type=History)
        assert later.times
        assert min(later.times) > first.times[-1]
        none = msgspec.json.decode((await ask(here, "/api/v1/history?since=99999999999")).body, type=History)
        assert (none.times, none.devices) == ((), ())

    play(tmp_path, world(), story)


def test_the_mapping_is_that_of_the_tables(tmp_path: Path) -> None:
    async def story(here: Scene) -> None:
        found = msgspec.json.decode((await ask(here, "/api/v1/mapping")).body, type=Mapped).mapping
        watts = [row for row in found if row.raw == "acme_power_mw"]
        assert [(row.collector, row.unit, row.common, row.exactness) for row in watts] == [
            ("acme", "milliwatts", "accel_power_watts", "exact")
        ]
        only = msgspec.json.decode((await ask(here, "/api/v1/mapping?collector=acme")).body, type=Mapped).mapping
        assert only == found

    play(tmp_path, world(), story)


# What it never tells


def test_no_secret_and_no_place_of_a_file_is_told(tmp_path: Path) -> None:
    secret = "hunter2-7f3a"
    collector = CollectorConfig(
        url=f"http://user:{secret}@127.0.0.1:1/{secret}?token={secret}",
        options={"world": str(tmp_path / "world.json"), "password": secret},
        bridge=Bridge(bearer_token_file=f"/etc/{secret}/token"),
    )
    what = {"unavailable": ["no_permission", f"cannot open /etc/{secret}/x, and http://u:{secret}@host/ refuses"]}

    async def story(here: Scene) -> None:
        for path in ["/", "/api/v1/openapi.json", *PATHS]:
            body = (await ask(here, path)).body.decode()
            assert secret not in body, path
            assert str(tmp_path) not in body, path
        [shown] = (await status(here)).collectors
        assert shown.hint == "cannot open …/x, and http://…@host/ refuses"
        settings = msgspec.json.decode((await ask(here, "/api/v1/config")).body, type=Settings).settings
        found = {each.key: each.value for each in settings}
        assert found["collectors.acme.options.password"] == "(hidden)"
        assert found["collectors.acme.url"] == "http://…@127.0.0.1:1/…"

    play(tmp_path, what, story, changes={"collectors": {"acme": collector}})


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("/api/v1/devices?x=1", b"expected no parameters"),
        ("/api/v1/history?since=yesterday", b"since: expected Unix time in seconds"),
        ("/api/v1/history?since=-1", b"since: expected Unix time in seconds"),
        ("/api/v1/history?since=1&since=2", b"since: expected once"),
        ("/api/v1/history?since=nan", b"since: expected Unix time in seconds"),
        ("/api/v1/mapping?collector=nobody", b"collector: expected the name of a collector"),
        ("/api/v1/mapping?collector=%3Cscript%3E", b"collector: expected the name of a collector"),
    ],
)
def test_what_cannot_be_answered_is_refused_with_what_was_expected(tmp_path: Path, target: str, words: bytes) -> None:
    async def story(here: Scene) -> None:
        answer = await ask(here, target)
        assert (answer.status, answer.headers["content-type"]) == (400, "text/plain; charset=utf-8")
        assert words in answer.body
        assert b"<" not in answer.body

    play(tmp_path, {"devices": []}, story, settle=False)


def test_routes_answer_to_reading_alone_and_are_compressed(tmp_path: Path) -> None:
    async def story(here: Scene) -> None:
        for path in ("/", "/assets/app.js", *PATHS):
            refused = await ask(here, path, method="POST")
            assert (refused.status, refused.headers["allow"]) == (405, "GET, HEAD"), path
            head = await ask(here, path, method="HEAD")
            assert (head.status, head.body) == (200, b"")
        packed = await ask(here, "/api/v1/devices", "Accept-Encoding: gzip")
        assert packed.headers["content-encoding"] == "gzip"
        assert len(packed.body) < len((await ask(here, "/api/v1/devices")).body)
        assert (await ask(here, "/assets/../model.py")).status == 404
        assert (await ask(here, "/assets/nothing.js")).status == 404

    play(tmp_path, world(4), story)


# What it costs


def test_a_publication_is_read_once_however_many_ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(here: Scene) -> None:
        here.set(hanging(world()))
        reads: list[int] = []
        read = here.monitor._read

        async def counted(publication: Any) -> Devices:
            reads.append(publication.version)
            return await read(publication)

        monkeypatch.setattr(here.monitor, "_read", counted)
        answers = await asyncio.gather(*(here.monitor.devices() for _ in range(20)))
        assert len(reads) == len(set(reads))
        assert {answer.version for answer in answers} == set(reads)

    play(tmp_path, world(), story)


def test_nothing_is_read_while_nobody_looks_but_the_curves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []

    def noted(text: str) -> dict[str, str]:
        parsed.append(text)
        return parse_labels(text)

    monkeypatch.setattr("exporter.status.samples.parse_labels", noted)

    async def story(here: Scene) -> None:
        await until(lambda: len(here.monitor.recorded.times()) >= 4)
        metrics = {text.partition("{")[0] for text in parsed}
        assert metrics == {
            "accel_utilization_ratio", "accel_memory_used_bytes", "accel_temperature_celsius", "accel_power_watts",
        }  # fmt: skip
        # The texts stay the same, so they are read once: four quantities of two devices.
        assert len(parsed) == 8
        before = here.agent.publication
        await devices(here)
        known = len(parsed)
        await until(lambda: here.agent.publication is not before)
        await devices(here)
        # Of the next publication only new texts are read, if there are any.
        assert len(parsed) - known < known / 2

    play(tmp_path, world(), story)


def test_a_device_can_be_named_as_it_likes(tmp_path: Path) -> None:
    name = 'a"b\\c\nd{e="f"} 1\u2028<>'
    what = world(1)
    what["devices"][0] |= {"uuid": name, "model": name}

    async def story(here: Scene) -> None:
        [device] = (await devices(here)).devices
        assert (device.uuid, device.model) == (name, name)

    play(tmp_path, what, story)
