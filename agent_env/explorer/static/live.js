// One stream of changes a page; closed while the page is hidden, replaced by questions when it fails.

const POLL_MS = 4000;
const RETRY_MS = 20000;
let seq = null;
let stream = null;
let timer = null;

export function startLive() {
  if (!document.querySelector("main[data-page]")) return;
  document.addEventListener("visibilitychange", () => (document.hidden ? pause() : resume()));
  // A browser keeps a page it left; its stream would hold one of few connections.
  addEventListener("pagehide", pause);
  addEventListener("pageshow", (event) => event.persisted && resume());
  if (!document.hidden) resume();
}

async function resume() {
  pause();
  if (seq !== null) await ask();
  if (!document.hidden) listen();
}

function pause() {
  stream?.close();
  stream = null;
  clearTimeout(timer);
  show("paused");
}

function listen() {
  if (typeof EventSource === "undefined") return poll(Infinity);
  const opened = new EventSource("/live");
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
  timer = setTimeout(async () => {
    await ask();
    if (document.hidden) return;
    if (Date.now() > until) listen();
    else poll(until);
  }, POLL_MS);
}

async function ask() {
  try {
    const answer = await fetch(`/live.json?since=${seq ?? 0}`);
    if (answer.ok) take(await answer.json());
    else trouble(`The explorer answers ${answer.status}.`);
  } catch {
    trouble("The explorer does not answer: what is shown may be old. Is it still running?");
  }
}

function take(changes) {
  const isFirst = seq === null;
  seq = changes.seq;
  const troubles = [];
  if (changes.index) troubles.push(`The run index can't be read: ${changes.index}`);
  if (changes.temporal) troubles.push(`Temporal can't be reached: ${changes.temporal}`);
  trouble(troubles.join(" "), Boolean(changes.index));
  // The first word only says where the stream is: the page is as new as it.
  document.dispatchEvent(new CustomEvent("live:changes", { detail: { ...changes, isFirst } }));
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
