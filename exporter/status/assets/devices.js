// The table of devices, with parts under their whole.

import {
  cell, celsius, drawSpark, duration, h, percent, pill, reconcile, setAttribute, setPill, setText, shown, spark,
  used, watts,
} from "./dom.js";

const HEALTH = { healthy: "good", degraded: "warn", failed: "bad", unknown: "unknown" };
const table = document.getElementById("device-table");
const body = table.tBodies[0];
const COLUMNS = table.tHead.rows[0].cells.length;

const keyOf = (device) => [device.vendor, device.uuid, device.partition ?? ""].join("\u001f");
const words = (text) => text.replaceAll("_", " ");

/** The points that the agent gave so far: each request brings those that are new. */
export class History {
  constructor() {
    this.forget(0);
  }

  forget(startedAt) {
    this.startedAt = startedAt;
    this.times = [];
    this.points = 120;
    this.curves = new Map();
  }

  get newest() {
    return this.times.at(-1) ?? 0;
  }

  add(answer) {
    // Another agent process remembers nothing of before, and its clock may differ.
    if (answer.started_at !== this.startedAt) this.forget(answer.started_at);
    this.period = answer.period;
    this.points = answer.points;
    const known = this.times.length;
    this.times = [...this.times, ...answer.times].slice(-this.points);
    const found = new Map(answer.devices.map((device) => [keyOf(device), device]));
    for (const key of new Set([...this.curves.keys(), ...found.keys()])) {
      const fields = (this.curves.get(key) ?? new Map());
      const device = found.get(key) ?? {};
      const names = Object.keys(device).filter((name) => Array.isArray(device[name]));
      for (const name of new Set([...fields.keys(), ...names])) {
        const old = fields.get(name) ?? new Array(known).fill(null);
        const fresh = device[name] ?? new Array(answer.times.length).fill(null);
        fields.set(name, [...old, ...fresh].slice(-this.points));
      }
      if ([...fields.values()].some((curve) => curve.some((value) => value !== null))) this.curves.set(key, fields);
      else this.curves.delete(key);
    }
  }

  of(device, field) {
    return this.curves.get(keyOf(device))?.get(field) ?? [];
  }
}

/** The quantities that have a column with a curve. */
const QUANTITIES = [
  { field: "utilization_ratio", label: "Utilization", metric: "accel_utilization_ratio", write: percent, top: () => 1 },
  { field: "compute_active_ratio", label: "Compute active", metric: "accel_compute_active_ratio", write: percent, top: () => 1 },
  {
    field: "memory_used_bytes", label: "Memory", metric: "accel_memory_used_bytes",
    write: (value, device) => used(value, device.memory_total_bytes), plain: (value) => used(value),
    top: (device) => device.memory_total_bytes,
  },
  {
    field: "temperature_celsius", label: "Temperature", metric: "accel_temperature_celsius", write: celsius,
    top: (device) => device.temperature_limit_celsius ?? 100,
  },
  {
    field: "power_watts", label: "Power", metric: "accel_power_watts", write: watts,
    top: (device) => device.power_limit_watts,
  },
];

const DETAILS = [
  ["uuid", "UUID"], ["partition_uuid", "UUID of the part"], ["partition_profile", "Profile"], ["serial", "Serial number"],
  ["pci_bus_id", "PCI address"], ["driver_version", "Driver"], ["firmware_version", "Firmware"],
  ["numa_node", "NUMA node"], ["device_class", "Device class"], ["kind", "Kind"],
];
const MORE = [
  ["matrix_active_ratio", "Matrix engines active", "accel_matrix_active_ratio", percent],
  ["memory_bandwidth_active_ratio", "Memory bandwidth", "accel_memory_bandwidth_active_ratio", percent],
  ["power_limit_watts", "Power limit", "accel_power_limit_watts", watts],
  ["temperature_limit_celsius", "Temperature limit", "accel_temperature_limit_celsius", celsius],
];

/** Where a vendor's devices have a metric from, in words; empty where it is not told. */
function provenance(sources, metric, vendor) {
  const found = sources.filter((each) => each.metric === metric && (vendor === undefined || each.vendor === vendor));
  return found
    .map((each) => `${vendor === undefined ? `${each.vendor}: ` : ""}${each.source} (${each.exactness})`)
    .join("\n");
}

function setUpHeadings(sources) {
  for (const heading of table.tHead.rows[0].cells) {
    const metric = heading.dataset.metric;
    if (metric === undefined) continue;
    if (heading.querySelector(".tip") === null) {
      const id = `tip-${metric}`;
      const name = heading.textContent;
      const info = h("button", { type: "button", class: "info", "aria-describedby": id, text: "i" });
      info.setAttribute("aria-label", `Where ${name} comes from`);
      // The space keeps the sign beside the last word.
      heading.append("\u00a0", h("span", { class: "about" }, info, h("span", { class: "tip", role: "tooltip", id })));
    }
    const text = provenance(sources, metric) || "no device here tells it";
    setText(heading.querySelector(".tip"), `${metric}\n${text}`);
  }
}

export function showDevices(answer, status, history) {
  setUpHeadings(answer.sources);
  const lines = answer.devices.flatMap((device) => [
    { device, whole: null },
    ...(device.parts ?? []).map((part) => ({ device: part, whole: device })),
  ]);
  const none = lines.length === 0;
  table.hidden = none;
  const empty = document.getElementById("no-devices");
  empty.hidden = !none;
  if (none) setText(empty, reasonForNone(status));
  const items = lines.flatMap((line) => [line, { ...line, details: true }]);
  const key = (item) => keyOf(item.device) + (item.details ? "\u001fdetails" : "");
  reconcile(
    body, items, key,
    (item) => (item.details ? makeDetails(item.device) : makeRow(item)),
    (element, item) => (item.details ? updateDetails : updateRow)(element, item, answer, history),
  );
}

function reasonForNone(status) {
  if (!status.ready) return "The first samples are being taken.";
  if (status.common_schema === false) {
    return "The common schema is switched off (schema.common: false), so no device is shown; the vendors' own series are served.";
  }
  return "No accelerator was found on this node. The collectors below say what they looked for; the command accel-exporter doctor says more.";
}

function makeRow({ device, whole }) {
  const id = `details-${idOf(device)}`;
  const toggle = h("button", { type: "button", class: "toggle", "aria-expanded": "false", "aria-controls": id, text: "Details" });
  toggle.setAttribute("aria-label", `Details of ${nameOf(device)}`);
  toggle.addEventListener("click", () => {
    const open = toggle.getAttribute("aria-expanded") !== "true";
    toggle.setAttribute("aria-expanded", String(open));
    document.getElementById(id).hidden = !open;
  });
  const quantities = QUANTITIES.map(({ label }) =>
    cell(label, { class: "quantity" }, h("span", { class: "value" }), spark()),
  );
  return h(
    "tr", { role: "row", class: whole === null ? "whole" : "part" },
    h("th", { scope: "row", role: "rowheader" }, h("span", { class: "name" }), h("span", { class: "model" })),
    cell("Health", { class: "health" }, pill(), h("ul", { class: "reasons" })),
    ...quantities,
    cell("Workload", { class: "workload" }),
    cell("Sample", { class: "age" }, h("span", { class: "value" }), h("span", { class: "flag" })),
    cell("", { class: "more" }, toggle),
  );
}

/** Something that an id may hold, the same for the same device. */
function idOf(device) {
  return [...keyOf(device)].map((c) => (/[A-Za-z0-9-]/.test(c) ? c : `_${c.codePointAt(0).toString(16)}`)).join("");
}

function nameOf(device) {
  const part = device.partition ? `, part ${device.partition}` : "";
  return `${device.vendor} ${device.device}${part}`;
}

function updateRow(row, { device, whole }, answer, history) {
  const [head, health, ...rest] = row.children;
  setText(head.firstChild, whole === null ? `${device.vendor} ${device.device}` : device.partition);
  setText(head.lastChild, whole === null ? device.model ?? "" : device.partition_profile || `part of ${whole.vendor} ${whole.device}`);
  updateHealth(health, device);
  QUANTITIES.forEach((quantity, index) => updateQuantity(rest[index], quantity, device, answer, history));
  updateWorkload(rest[QUANTITIES.length], device);
  const age = rest[QUANTITIES.length + 1];
  age.dataset.at = device.sampled_at ?? "";
  setText(age.lastChild, device.stale ? "stale" : "");
}

function updateHealth(health, device) {
  const [state, reasons] = health.children;
  state.hidden = device.health === undefined;
  if (device.health !== undefined) setPill(state, HEALTH[device.health], device.health);
  const actions = (device.recovery_actions ?? []).map((action) => `needs: ${words(action)}`);
  const throttling = (device.throttling ?? []).map((reason) => `slowed down: ${words(reason)}`);
  const lines = [...(device.reasons ?? []), ...actions, ...throttling];
  reconcile(reasons, lines, (line) => line, () => h("li"), (item, line) => setText(item, line));
  reasons.hidden = lines.length === 0;
}

function updateQuantity(element, { field, metric, write, top }, device, answer, history) {
  const value = device[field];
  const inParts = value === undefined && (device.parts ?? []).some((part) => part[field] !== undefined);
  const [text, curve] = element.children;
  setText(text, inParts ? "in its parts" : shown(value, (number) => write(number, device)));
  element.classList.toggle("missing", value === undefined);
  const source = provenance(answer.sources, metric, device.vendor);
  const sensor = field === "temperature_celsius" && device.temperature_sensor ? `sensor: ${device.temperature_sensor}\n` : "";
  setAttribute(element, "title", value === undefined ? "" : `${metric}\n${sensor}${source}`);
  const values = history.of(device, field);
  const seen = values.filter((number) => number !== null);
  drawSpark(curve, values, top(device) ?? (seen.length ? Math.max(...seen) : 1));
}

function updateWorkload(element, device) {
  const workloads = device.workloads ?? [];
  const lines = workloads.map(describe);
  if (!lines.length) lines.push({ main: device.allocated === false ? "free" : "–", more: "" });
  reconcile(
    element, lines, (line) => `${line.main}\u001f${line.more}`,
    () => h("div", { class: "held" }, h("span", { class: "main" }), h("span", { class: "model" })),
    (item, line) => {
      setText(item.firstChild, line.main);
      setText(item.lastChild, line.more);
    },
  );
  element.classList.toggle("missing", workloads.length === 0);
}

function describe(workload) {
  const pod = workload.pod ? `${workload.namespace}/${workload.pod}` : "";
  const job = workload.job_name ?? "";
  const main = pod || (job && `job ${job}`) || (workload.tenant && `tenant ${workload.tenant}`) || "held";
  const more = [
    workload.container && `container ${workload.container}`,
    pod && job && `job ${job}`,
    workload.queue && `queue ${workload.queue}`,
    main !== `tenant ${workload.tenant}` && workload.tenant && `tenant ${workload.tenant}`,
    workload.served_model && `model ${workload.served_model}`,
    workload.share === "shared" && "shared",
  ];
  return { main, more: more.filter(Boolean).join(" · ") };
}

function makeDetails(device) {
  const content = h("td", { role: "cell", colspan: COLUMNS }, h("dl", { class: "facts" }));
  return h("tr", { role: "row", class: "details", id: `details-${idOf(device)}`, hidden: true }, content);
}

function updateDetails(row, { device }, answer, history) {
  if (row.hidden && row.dataset.filled) return;
  row.dataset.filled = "yes";
  const facts = DETAILS.filter(([field]) => device[field]).map(([field, label]) => [label, device[field], ""]);
  const measured = [
    ...QUANTITIES.map(({ field, label, metric, write, plain = write }) => [field, label, metric, write, plain]), ...MORE,
  ]
    .filter(([field]) => device[field] !== undefined)
    .map(([field, label, metric, write, plain]) => [
      label,
      write(device[field], device) + range(history.of(device, field), plain),
      provenance(answer.sources, metric, device.vendor),
    ]);
  const faults = (device.faults ?? []).map((fault) => [
    `Fault ${fault.code}`,
    `${fault.name ? `${fault.name}, ` : ""}${fault.severity}, ${fault.count} times, last ${new Date(fault.last * 1000).toISOString()}`,
    fault.action === "none" ? "" : `to do: ${words(fault.action)}`,
  ]);
  reconcile(
    row.querySelector("dl"), [...facts, ...measured, ...faults], ([label]) => label,
    () => h("div", {}, h("dt"), h("dd", {}, h("span"), h("span", { class: "source" }))),
    (item, [label, value, source]) => {
      setText(item.firstChild, label);
      setText(item.lastChild.firstChild, String(value));
      setText(item.lastChild.lastChild, source);
    },
  );
}

/** The least and the most of the curve, for those who do not see it. */
function range(values, write) {
  const seen = values.filter((value) => value !== null);
  if (seen.length < 2) return "";
  const [least, most] = [write(Math.min(...seen)), write(Math.max(...seen))];
  return least === most ? "" : `; lately ${least} to ${most}`;
}

/** The ages grow from second to second, whether or not the agent answers. */
export function tickDevices(now) {
  for (const age of body.querySelectorAll("td.age")) {
    setText(age.firstChild, age.dataset.at ? duration(now - Number(age.dataset.at)) : "none");
  }
}
