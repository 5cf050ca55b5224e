// Elements and texts. Whatever the agent was told by devices, pods and people becomes text here, and never markup.

const SVG = "http://www.w3.org/2000/svg";

/** An element with attributes (booleans as such, `text` for its text) and children. */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "text") element.textContent = value;
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== undefined && value !== null) element.setAttribute(name, String(value));
  }
  element.append(...children.filter((child) => child !== null && child !== undefined && child !== ""));
  return element;
}

/** Change a text only where it differs: a screen reader must not hear the same again. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function setAttribute(element, name, value) {
  if (value === null || value === undefined || value === "") element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, String(value));
}

/** Bring the children of a container in line with items, and keep the element of each key: focus stays where it is. */
export function reconcile(container, items, keyOf, make, update) {
  const before = new Map([...container.children].map((child) => [child.dataset.key, child]));
  const times = new Map();
  let next = container.firstElementChild;
  for (const item of items) {
    const name = keyOf(item);
    times.set(name, (times.get(name) ?? 0) + 1);
    const key = `${times.get(name)} ${name}`;
    let element = before.get(key);
    before.delete(key);
    if (element === undefined) {
      element = make(item);
      element.dataset.key = key;
    }
    if (element === next) next = next.nextElementSibling;
    else container.insertBefore(element, next);
    update(element, item);
  }
  for (const left of before.values()) left.remove();
}

/** A cell; `label` is its column's heading, for narrow screens. */
export function cell(label, attributes = {}, ...children) {
  return h("td", { role: "cell", "data-label": label, ...attributes }, ...children);
}

const NONE = "–";

export const percent = (value) => `${(value * 100).toFixed(value > 0 && value < 0.0995 ? 1 : 0)} %`;
export const watts = (value) => (value < 10_000 ? `${value.toFixed(0)} W` : `${(value / 1000).toFixed(1)} kW`);
export const celsius = (value) => `${value.toFixed(0)} °C`;
export const whole = (value) => value.toLocaleString("en");

/** Bytes in the unit of the larger of two numbers, so that both can be compared at a glance. */
export function bytes(value, of = value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const step = Math.min(units.length - 1, Math.max(0, Math.floor(Math.log2(Math.max(of, 1)) / 10)));
  const number = value / 2 ** (10 * step);
  return { number: number.toFixed(step === 0 || number >= 100 ? 0 : 1), unit: units[step] };
}

export function used(value, total) {
  const of = bytes(total ?? value);
  const has = bytes(value, total ?? value);
  return total === undefined ? `${has.number} ${has.unit}` : `${has.number} / ${of.number} ${of.unit}`;
}

export const shown = (value, write) => (value === undefined || value === null ? NONE : write(value));

export function duration(seconds) {
  const s = Math.max(0, seconds);
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 120) return `${s.toFixed(0)} s`;
  if (s < 7200) return `${(s / 60).toFixed(0)} min`;
  return s < 172800 ? `${(s / 3600).toFixed(0)} h` : `${(s / 86400).toFixed(0)} days`;
}

/** A state as a word with a sign: never by its colour alone. */
const SIGNS = { good: "✓", warn: "!", bad: "✕", unknown: "?", off: "·" };

export function pill() {
  return h("span", { class: "pill" }, h("span", { class: "sign", "aria-hidden": "true" }), h("span", { class: "word" }));
}

export function setPill(element, kind, word) {
  element.dataset.kind = kind;
  setText(element.firstChild, SIGNS[kind]);
  setText(element.lastChild, word);
}

/** A small curve. It repeats what the number beside it says, so it is hidden from screen readers. */
export function spark() {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("class", "spark");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("aria-hidden", "true");
  svg.setAttribute("focusable", "false");
  for (const name of ["area", "line"]) {
    const path = document.createElementNS(SVG, "path");
    path.setAttribute("class", name);
    svg.append(path);
  }
  return svg;
}

const SHORTEST = 40;
const HEIGHT = 20;

/** Draw values from 0 to `top`, the newest at the right edge; null is a gap. What is young grows to the left first. */
export function drawSpark(svg, values, top) {
  const width = Math.max(SHORTEST, values.length);
  setAttribute(svg, "viewBox", `0 0 ${width - 1} ${HEIGHT}`);
  const runs = [];
  let run = null;
  values.forEach((value, index) => {
    if (value === null) {
      run = null;
      return;
    }
    if (run === null) runs.push((run = []));
    const share = Math.min(1, Math.max(0, value / (top || 1)));
    run.push([width - values.length + index, (HEIGHT - 1 - (HEIGHT - 2) * share).toFixed(1)]);
  });
  const line = runs.map((points) => `M${points.map((point) => point.join(" ")).join("L")}h0.01`).join("");
  const area = runs
    .map((points) => `M${points[0][0]} ${HEIGHT}L${points.map((point) => point.join(" ")).join("L")}V${HEIGHT}Z`)
    .join("");
  setAttribute(svg.firstChild, "d", area);
  setAttribute(svg.lastChild, "d", line);
  svg.classList.toggle("blank", line === "");
}
