// Everything around the table of devices: summary, notices, collectors, attribution, push, configuration.

import { bytes, cell, duration, h, pill, reconcile, setPill, setText, watts, whole } from "./dom.js";

const ABSENT = new Set(["no_device", "no_library", "no_driver"]);
const RUNNING = { running: "good", starting: "unknown", released: "off", no_device: "off", no_library: "off", no_driver: "off" };
const announce = document.getElementById("announce");
const words = (text) => text.replaceAll("_", " ");
const plural = (count, word) => `${whole(count)} ${word}${count === 1 ? "" : "s"}`;

export function showSummary({ devices }) {
  const states = new Map();
  for (const device of devices) states.set(device.health ?? "unknown", (states.get(device.health ?? "unknown") ?? 0) + 1);
  const lines = devices.flatMap((device) => [device, ...(device.parts ?? [])]);
  const sum = (field) => lines.reduce((total, line) => total + (line[field] ?? 0), 0);
  const has = (field) => lines.some((line) => line[field] !== undefined);
  const parts = lines.length - devices.length;
  const busy = lines.filter((line) => line.allocated === true).length;
  const holders = lines.filter((line) => line.allocated !== undefined).length;
  const counted = ["healthy", "degraded", "failed", "unknown"].filter((state) => states.has(state));
  const health = counted.map((state) => `${states.get(state)} ${state}`).join(", ");
  const items = [
    ["Devices", whole(devices.length) + (parts ? ` and ${plural(parts, "part")}` : "")],
    ...(devices.length ? [["Health", health]] : []),
    ...(has("power_watts") ? [["Power", watts(sum("power_watts"))]] : []),
    ...(has("memory_used_bytes") ? [["Memory in use", ((b) => `${b.number} ${b.unit}`)(bytes(sum("memory_used_bytes")))]] : []),
    ...(holders ? [["Held by workloads", `${busy} of ${holders}`]] : []),
  ];
  reconcile(
    document.getElementById("summary"), items, ([label]) => label, () => h("div", {}, h("dt"), h("dd")),
    (item, [label, value]) => {
      setText(item.firstChild, label);
      setText(item.lastChild, value);
    },
  );
  setText(announce, devices.length ? `${plural(devices.length, "device")}: ${health}` : "No device");
}

/** What is wrong with the node as a whole, at the top. */
export function showNotices({ counts }, status) {
  const notices = [];
  if (!status.healthy) notices.push(["failed", `The agent itself does not work: ${status.trouble}`]);
  for (const { vendor, present, reporting = 0, expected = 0 } of counts) {
    const missing = Math.max(expected, present ?? 0) - reporting;
    if (missing > 0) {
      const onBus = present === undefined || status.simulated ? "" : `, ${present} on the bus`;
      notices.push(["degraded", `${vendor}: ${plural(missing, "device")} of ${Math.max(expected, present ?? 0)} not reporting (${expected} expected${onBus}).`]);
    }
  }
  for (const each of status.collectors ?? []) {
    if (each.stale?.length) {
      notices.push(["degraded", `${each.title}: the ${each.stale.join(", ")} readings are too old, and their series were withdrawn. The collector's state: ${words(each.state)}.`]);
    }
  }
  reconcile(
    document.getElementById("notices"), notices, ([, text]) => text, ([kind]) => h("p", { class: `notice ${kind}` }),
    (item, [, text]) => setText(item, text),
  );
}

export function showStatus(status) {
  showCollectors(status.collectors ?? []);
  showAttribution(status.attribution);
  showOtlp(status.otlp ?? []);
}

function showCollectors(collectors) {
  const absent = collectors.filter((each) => ABSENT.has(each.state) && !each.devices);
  const here = collectors.filter((each) => !absent.includes(each));
  const table = document.getElementById("collector-table");
  table.hidden = here.length === 0;
  reconcile(table.tBodies[0], here, (each) => each.name, makeCollector, updateCollector);
  const details = document.getElementById("absent");
  details.hidden = absent.length === 0;
  setText(details.firstElementChild, `${plural(absent.length, "collector")} without devices on this node`);
  reconcile(
    details.querySelector("ul"), absent, (each) => each.name, () => h("li"),
    (item, each) => setText(item, `${each.title}: ${words(each.state)}${each.hint ? ` (${each.hint})` : ""}`),
  );
}

function makeCollector() {
  return h(
    "tr", { role: "row" },
    h("th", { scope: "row", role: "rowheader" }, h("span", { class: "name" }), h("span", { class: "model" })),
    cell("State", {}, pill()), cell("Devices", { class: "number" }), cell("Raw series", { class: "number" }),
    cell("Newest sample", { class: "age" }, h("span", { class: "value" }), h("span", { class: "flag" })),
    cell("What to do", { class: "hint" }, h("span"), h("ul", { class: "reasons" })),
  );
}

function updateCollector(row, each) {
  const [head, state, devices, series, age, hint] = row.children;
  setText(head.firstChild, each.title);
  const ways = [each.name, each.source, each.bridged && "through the vendor's exporter", each.simulated && "simulated"];
  setText(head.lastChild, ways.filter(Boolean).join(" · "));
  const stale = (each.stale ?? []).length > 0;
  const kind = RUNNING[each.state] ?? "bad";
  setPill(state.firstChild, stale && kind === "good" ? "warn" : kind, words(each.state));
  setText(devices, whole(each.devices ?? 0));
  setText(series, whole(each.series ?? 0));
  age.dataset.at = each.sampled_at ?? "";
  setText(age.lastChild, stale ? `stale: ${each.stale.join(", ")}` : "");
  setText(hint.firstChild, each.hint ?? "");
  const errors = each.errors ?? [];
  hint.lastChild.hidden = errors.length === 0;
  reconcile(hint.lastChild, errors, (text) => text, () => h("li"), (item, text) => setText(item, text));
}

function showAttribution(attribution) {
  const { active, sources, unattributed, unmatched, contradictions } = attribution;
  const free = Object.entries(unattributed).filter(([, count]) => count);
  const lines = [
    ...free.map(([reason, count]) => `${plural(count, "device or part")} without a workload (${words(reason)}).`),
    ...Object.entries(unmatched).map(([resource, count]) => `${plural(count, "id")} of ${resource} that no collector knows.`),
    contradictions ? `${plural(contradictions, "device")} for which two sources name different workloads.` : "",
  ];
  const none = "No source tells who works on the devices: mount the kubelet's pod-resources directory, or set attribution in the configuration.";
  setText(document.getElementById("attribution-text"), active ? lines.filter(Boolean).join(" ") : none);
  const table = document.getElementById("attribution-table");
  table.hidden = !sources.length;
  reconcile(
    table.tBodies[0], sources, (each) => each.name,
    () => h(
      "tr", { role: "row" }, h("th", { scope: "row", role: "rowheader" }), cell("State", {}, pill()),
      cell("Last answer", { class: "age" }, h("span", { class: "value" })), cell("What to do", { class: "hint" }),
    ),
    (row, each) => {
      const [name, state, age, hint] = row.children;
      setText(name, each.name);
      setPill(state.firstChild, each.up ? "good" : "bad", each.up ? "answers" : "does not answer");
      age.dataset.at = each.last_success ?? "";
      setText(hint, each.hint ?? "");
    },
  );
}

function showOtlp(endpoints) {
  document.getElementById("otlp").hidden = !endpoints.length;
  reconcile(
    document.getElementById("otlp-table").tBodies[0], endpoints, (each) => each.name,
    () => h(
      "tr", { role: "row" }, h("th", { scope: "row", role: "rowheader" }), cell("State", {}, pill()),
      cell("Last success", { class: "age" }, h("span", { class: "value" })), cell("Waiting", { class: "number" }),
      cell("Dropped points", { class: "number" }), cell("What to do", { class: "hint" }),
    ),
    (row, each) => {
      const [name, state, age, queued, dropped, hint] = row.children;
      setText(name, each.name);
      if (each.up === undefined) setPill(state.firstChild, "unknown", "nothing sent yet");
      else setPill(state.firstChild, each.up ? "good" : "bad", each.up ? "receives" : "does not receive");
      age.dataset.at = each.last_success ?? "";
      setText(queued, whole(each.queued ?? 0));
      setText(dropped, whole(each.dropped ?? 0));
      setText(hint, each.hint ?? "");
    },
  );
}

export function tickStatus(now) {
  for (const age of document.querySelectorAll("#collector-table td.age, #attribution-table td.age, #otlp-table td.age")) {
    setText(age.firstChild, age.dataset.at ? `${duration(now - Number(age.dataset.at))} ago` : "none");
  }
}

/** The configuration is asked for when somebody opens it, and anew each time. */
export function setUpConfig(ask) {
  const details = document.getElementById("config");
  const all = document.getElementById("config-all");
  const text = document.getElementById("config-text");
  let settings = [];
  const show = () => {
    const chosen = settings.filter((each) => all.checked || !each.default);
    setText(text, chosen.length ? "" : "Every setting is at its default.");
    document.getElementById("config-table").hidden = chosen.length === 0;
    reconcile(
      document.getElementById("config-table").tBodies[0], chosen, (each) => each.key,
      () => h("tr", { role: "row" }, h("th", { scope: "row", role: "rowheader" }), cell("Value")),
      (row, each) => {
        setText(row.firstChild, each.key);
        setText(row.lastChild, typeof each.value === "string" ? each.value || "empty" : JSON.stringify(each.value));
        row.classList.toggle("missing", each.default);
      },
    );
  };
  details.addEventListener("toggle", async () => {
    if (!details.open) return;
    try {
      ({ settings } = await ask("api/v1/config"));
      show();
    } catch (error) {
      console.debug("no configuration", error);
      setText(text, "The agent does not answer.");
    }
  });
  all.addEventListener("change", show);
}
