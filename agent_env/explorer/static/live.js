// One stream of changes a page; closed while the page is hidden, replaced by questions when it fails. Each goes on from
// what the page heard last, and the first from when the page was made: nothing that changes meanwhile is lost.

const POLL_MS = 4000;
const RETRY_MS = 20000;
let seq = null;
let stream = null;
let timer = null;
let turn = 0;

export function startLive() {
  if (!document.querySelector("main[data-page]")) return;
  seq = document.body.dataset.seq ?? null;
  document.addEventListener("visibilitychange", () => (document.hidden ? pause() : resume()));
  // A browser keeps a page it left; its stream would hold one of few connections.
  addEventListener("pagehide", pause);
  addEventListener("pageshow", (event) => event.persisted && resume());
  if (!document.hidden) resume();
}

function resume() {
  pause();
  listen();
}

function pause() {
  turn += 1;
  stream?.close();
  stream = null;
  clearTimeout(timer);
  show("paused");
}

function question() {
  const about = document.getElementById("main").dataset.run;
  const query = new URLSearchParams();
  if (seq !== null) query.set("since", seq);
  if (about) query.set("run", decodeURIComponent(about));
  return query;
}

function listen() {
  if (typeof EventSource === "undefined") return poll(Infinity);
  const opened = new EventSource(`/live?${question()}`);
  stream = opened;
  opened.addEventListener("open", () => show("live"));
  opened.addEventListener("changes", (event) => {
    show("live");
    take(JSON.parse(event.data));
  });
  opened.addEventListener("error", () => {
    if (stream !== opened) return;
    opened.close();
    stream = null;
    poll(Date.now() + RETRY_MS);
  });
}

function poll(until) {
  show("asks every few seconds");
  clearTimeout(timer);
  const at = turn;
  timer = setTimeout(async () => {
    await ask(at);
    if (at !== turn) return;
    if (Date.now() > until) listen();
    else poll(until);
  }, POLL_MS);
}

async function ask(at) {
  let words = "";
  let changes = null;
  try {
    const answer = await fetch(`/live.json?${question()}`);
    if (answer.ok) changes = await answer.json();
    else words = `The explorer answers ${answer.status}.`;
  } catch {
    words = "The explorer does not answer: what is shown may be old. Is it still running?";
  }
  if (at !== turn) return;
  if (changes) take(changes);
  else trouble(words);
}

function take(changes) {
  seq = changes.seq;
  const troubles = [];
  if (changes.index) troubles.push(`The run index can't be read: ${changes.index}`);
  if (changes.temporal) troubles.push(`Temporal can't be reached: ${changes.temporal}`);
  trouble(troubles.join(" "));
  document.dispatchEvent(new CustomEvent("live:changes", { detail: changes }));
}

function trouble(words) {
  const place = document.getElementById("trouble");
  if (place.dataset.words === words) return;
  place.dataset.words = words;
  if (!words) {
    place.replaceChildren();
    return;
  }
  const notice = document.createElement("div");
  notice.className = "notice s-failed";
  const text = document.createElement("p");
  text.textContent = words;
  notice.append(text);
  place.replaceChildren(notice);
}

function show(state) {
  const place = document.getElementById("live-state");
  place.textContent = state;
  place.dataset.state = state;
}
