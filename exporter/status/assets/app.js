// Asks the agent every few seconds, and shows what it says, how old that is, and when it says nothing any more.

import { History, showDevices, tickDevices } from "./devices.js";
import { duration, setText } from "./dom.js";
import { showNotices, showStatus, showSummary, setUpConfig, tickStatus } from "./panels.js";

const LONGEST_PAUSE = 60_000;
const PATIENCE = 10_000;

const live = document.getElementById("live");
const gone = document.getElementById("gone");
const history = new History();

/** What is shown: the last answers, and when they came by this browser's clock that never jumps. */
let last = null;
let failures = 0;
let failedSince = null;
let timer = 0;
let nextTry = 0;
let asking = false;

async function ask(path) {
  const answer = await fetch(path, { signal: AbortSignal.timeout(PATIENCE), cache: "no-store" });
  if (!answer.ok) throw new Error(`${path} answers ${answer.status}`);
  return answer.json();
}

async function refresh() {
  if (asking) return;
  asking = true;
  clearTimeout(timer);
  try {
    const [devices, status, points] = await Promise.all([
      ask("api/v1/devices"),
      ask("api/v1/status"),
      ask(`api/v1/history?since=${history.newest}`),
    ]);
    history.add(points);
    last = { devices, status, at: performance.now() };
    failures = 0;
    failedSince = null;
    show();
  } catch (error) {
    failures += 1;
    failedSince ??= performance.now();
    console.debug("no answer", error);
  } finally {
    asking = false;
  }
  const pause = failures ? Math.min(LONGEST_PAUSE, period() * 2 ** Math.min(failures, 10)) : period();
  nextTry = performance.now() + pause;
  if (!document.hidden) timer = setTimeout(refresh, pause);
  tick();
}

/** As often as there is something new, within reason. */
function period() {
  return Math.min(15_000, Math.max(2_000, (history.period || 3) * 1000));
}

function show() {
  document.getElementById("app").hidden = false;
  live.hidden = false;
  showSummary(last.devices);
  showNotices(last.devices, last.status);
  showDevices(last.devices, last.status, history);
  showStatus(last.status);
}

/** Seconds that have passed for the agent, as well as this browser can tell. */
function agentNow(answer) {
  return answer.now + (performance.now() - last.at) / 1000;
}

function tick() {
  const isGone = failures > 0;
  document.body.classList.toggle("is-gone", isGone);
  if (last !== null) {
    tickDevices(agentNow(last.devices));
    tickStatus(agentNow(last.status));
    const age = duration((performance.now() - last.at) / 1000);
    live.dataset.state = isGone ? "gone" : "live";
    setText(live, isGone ? `No answer; this is ${age} old` : "Live");
  }
  showGone(isGone);
}

function showGone(isGone) {
  gone.hidden = !isGone;
  if (!isGone) {
    gone.replaceChildren();
    return;
  }
  if (!gone.hasChildNodes()) {
    const text = document.createElement("p");
    // Only that it is gone is news: the seconds are not to be read out, one by one.
    const countdown = document.createElement("p");
    countdown.setAttribute("aria-live", "off");
    const retry = document.createElement("button");
    retry.type = "button";
    retry.textContent = "Try now";
    retry.addEventListener("click", refresh);
    setText(text, "The agent does not answer: it may have ended, or the way to it is cut. What stands below is old.");
    gone.append(text, countdown, retry);
  }
  const seconds = Math.max(0, (nextTry - performance.now()) / 1000);
  const since = duration((performance.now() - failedSince) / 1000);
  setText(gone.children[1], asking ? "Asking…" : `Silent for ${since}. Next try in ${Math.ceil(seconds)} s.`);
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) clearTimeout(timer);
  else refresh();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && document.activeElement?.matches(".info")) document.activeElement.blur();
});

setUpConfig(ask);
setInterval(tick, 1000);
refresh();
