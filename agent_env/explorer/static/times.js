// Times in the reader's own zone, and seconds that go on counting.

const TICK_MS = 1000;
let skewMs = 0;

export function startTimes() {
  skewMs = Number(document.body.dataset.now) - Date.now();
  // A page from the browser's memory was not made now.
  if (Math.abs(skewMs) < 5000) skewMs = 0;
  localize(document);
  setInterval(() => tick(document), TICK_MS);
}

export function localize(root) {
  const now = new Date(Date.now() + skewMs);
  for (const time of root.querySelectorAll("time[datetime]")) {
    const at = new Date(time.dateTime);
    if (Number.isNaN(at.getTime())) continue;
    time.textContent = shown(at, now);
    time.title = at.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "long" });
  }
  tick(root);
}

function shown(at, now) {
  const clock = `${two(at.getHours())}:${two(at.getMinutes())}`;
  if (at.toDateString() === now.toDateString()) return `${clock}:${two(at.getSeconds())}`;
  if (at.getFullYear() !== now.getFullYear()) {
    return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  }
  return `${at.toLocaleString("en", { month: "short" })} ${two(at.getDate())} ${clock}`;
}

const two = (number) => String(number).padStart(2, "0");

function tick(root) {
  for (const span of root.querySelectorAll("[data-since]")) {
    const seconds = Math.max(0, (Date.now() + skewMs - new Date(span.dataset.since)) / 1000);
    const words = length(Math.round(seconds));
    if (span.textContent !== words) span.textContent = words;
  }
}

function length(seconds) {
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} m ${two(seconds % 60)} s`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${two(Math.floor((seconds % 3600) / 60))} m`;
  return `${Math.floor(seconds / 86400)} d ${two(Math.floor((seconds % 86400) / 3600))} h`;
}
