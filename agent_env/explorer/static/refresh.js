// Pages about one thing are fetched again when it changes, and changed in place.
import { fetchPage, morph } from "./morph.js";
import { say } from "./say.js";

const PAUSE_MS = { run: 300, group: 800, compare: 1500, tasks: 5000, health: 5000, error: 1000 };
let timer = null;
let busy = false;
let again = false;

export function startRefresh() {
  const kind = document.getElementById("main")?.dataset.page;
  if (!(kind in PAUSE_MS)) return;
  document.addEventListener("live:changes", (event) => {
    if (concerns(kind, event.detail)) soon();
  });
  if (kind === "health") setInterval(() => document.hidden || soon(), 5000);
  if (kind === "run") setInterval(() => document.getElementById("canceling") && !document.hidden && soon(), 5000);
  if (kind === "error") setInterval(() => document.hidden || reloadOnceWell(), 2000);
}

function concerns(kind, changes) {
  const main = document.getElementById("main");
  if (kind === "error") return false;
  if (changes.all) return true;
  if (kind === "run") return changes.runs.includes(decodeURIComponent(main.dataset.run));
  if (kind === "group") return changes.groups.includes(decodeURIComponent(main.dataset.group));
  return changes.runs.length > 0;
}

function soon() {
  if (busy) again = true;
  if (busy || timer !== null) return;
  timer = setTimeout(run, PAUSE_MS[document.getElementById("main").dataset.page]);
}

async function run() {
  timer = null;
  busy = true;
  try {
    await refresh();
  } catch {
    // The notice on top says what is wrong; the next change asks again.
  }
  busy = false;
  if (again) {
    again = false;
    soon();
  }
}

export async function refresh() {
  const main = document.getElementById("main");
  const found = await fetchPage(location.href);
  if (found.isStale) return soon();
  const fresh = found.document.getElementById("main");
  if (found.status !== 200 || !fresh) return;
  const before = statusOf(document);
  morph(main, fresh);
  document.title = found.document.title;
  const now = statusOf(document);
  if (now && now !== before) say(`This run is now ${now}`);
}

const statusOf = (root) => root.querySelector("main[data-page=run] h1 .hidden-words")?.textContent;

async function reloadOnceWell() {
  if (document.getElementById("main").dataset.status !== "503") return;
  try {
    const answer = await fetch(location.href);
    if (answer.ok) location.reload();
  } catch {
    // Still not there.
  }
}
