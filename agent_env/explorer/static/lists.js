// Lists of runs and groups: rows change where they are, new ones wait behind a button.
import { fetchDocument, fetchPage, morph, staleness } from "./morph.js";
import { say } from "./say.js";

const PAUSE_MS = 400;
const AT_ONCE = 100;
const LISTS = {
  runs: { attribute: "run", rows: "/runs/rows", key: "runs" },
  groups: { attribute: "group", rows: "/groups/rows", key: "groups" },
  group: { attribute: "run", rows: "/runs/rows", key: "runs" },
};
const changed = new Set();
const unknown = new Set();
let isNewer = false;
let timer = null;
let busy = false;

export function startLists() {
  const kind = page();
  if (kind !== "runs" && kind !== "groups") return;
  document.addEventListener("live:changes", (event) => take(event.detail));
  document.addEventListener("click", (event) => {
    // When it fails, the button is still there, and the notice on top says what is wrong.
    if (event.target.closest("#newer")) showNewest().catch(() => {});
  });
}

const main = () => document.getElementById("main");
const page = () => main()?.dataset.page;

function take(changes) {
  if (changes.live) showCounts(changes.live);
  const list = LISTS[page()];
  if (!list) return;
  const shown = new Set([...rows(list)].map((row) => idOf(row, list)));
  const named = changes.all ? shown : changes[list.key];
  for (const id of named) {
    if (shown.has(id)) changed.add(id);
    else unknown.add(id);
  }
  if (changes.all || unknown.size) isNewer = true;
  if (changed.size || isNewer) schedule();
}

const rows = (list) => document.querySelectorAll(`#results tbody[data-${list.attribute}]`);
const idOf = (row, list) => decodeURIComponent(row.dataset[list.attribute]);

function schedule() {
  if (timer !== null || busy) return;
  timer = setTimeout(async () => {
    timer = null;
    busy = true;
    // A filter's answer that is under way may be older than rows fetched now, and come later.
    const isWell = document.querySelector(".htmx-request") !== null || (await refresh());
    busy = false;
    if (isWell && (changed.size || isNewer)) schedule();
  }, PAUSE_MS);
}

async function refresh() {
  const list = LISTS[page()];
  const ids = [...changed].slice(0, AT_ONCE);
  for (const id of ids) changed.delete(id);
  const asksForNew = isNewer;
  isNewer = false;
  try {
    if (ids.length) await refreshRows(list, ids);
    if (asksForNew) await countNew();
    return true;
  } catch {
    // The notice on top says what is wrong; the next word of the stream asks again, for these, too.
    for (const id of ids) changed.add(id);
    isNewer ||= asksForNew;
    return false;
  }
}

async function refreshRows(list, ids) {
  const query = new URLSearchParams(ids.map((id) => ["ids", id]));
  const columns = new URLSearchParams(location.search).get("columns");
  if (columns) query.set("columns", columns);
  const found = await fetchDocument(`${list.rows}?${query}`);
  if (found.isStale) return ids.forEach((id) => changed.add(id));
  if (found.status !== 200) throw new Error(`the rows can't be read: ${found.status}`);
  for (const fresh of found.document.querySelectorAll("tbody[id]")) {
    const old = document.getElementById(fresh.id);
    if (!old) continue;
    const moved = old.dataset.state !== fresh.dataset.state;
    morph(old, fresh);
    if (moved) blink(document.getElementById(fresh.id));
  }
}

function blink(row) {
  row.classList.remove("changed");
  void row.offsetWidth;
  row.classList.add("changed");
}

async function countNew() {
  const button = document.getElementById("newer");
  if (!button) return;
  let words = "";
  if (page() === "groups") {
    const count = unknown.size;
    words = count ? `${count} new or changed ▲` : "";
  } else {
    const isStale = staleness();
    const query = new URLSearchParams(location.search);
    for (const name of ["after", "columns", "limit", "sort"]) query.delete(name);
    const first = main().dataset.first;
    if (first) query.set("after", first);
    const answer = await fetch(`/runs/newer.json?${query}`);
    if (!answer.ok) throw new Error(`what is new can't be counted: ${answer.status}`);
    const newer = await answer.json();
    if (isStale()) {
      isNewer = true;
      return;
    }
    words = newer.count ? `${newer.count}${newer.is_more ? "+" : ""} new ▲` : "";
  }
  // An empty list has nobody to disturb.
  if (words && !document.querySelector("#results tbody")) return showNewest();
  if (button.hidden && words) say(`${words.replace(" ▲", "")} in this list`);
  button.textContent = words;
  button.hidden = !words;
}

async function showNewest() {
  const query = new URLSearchParams(location.search);
  query.delete("after");
  const url = `${location.pathname}${query.size ? `?${query}` : ""}`;
  const known = [...unknown];
  const found = await fetchPage(url);
  if (found.isStale || found.status !== 200) return;
  if (url !== location.pathname + location.search) history.pushState({ htmx: true }, "", url);
  for (const id of known) unknown.delete(id);
  morph(main(), found.document.getElementById("main"));
  scrollTo({ top: 0 });
}

function showCounts(live) {
  const place = document.getElementById("live-counts");
  if (!place) return;
  const many = (count) => `${count.toLocaleString("en")}${count >= 10000 ? "+" : ""}`;
  const queued = live.queued ? ` · ${many(live.queued)} queued` : "";
  place.textContent = `${many(live.running)} running${queued}`;
}
