// A long conversation: more of it on demand, a search, and links to single messages.
import { fetchDocument } from "./morph.js";
import { say } from "./say.js";

const PART = 200;
const HITS = 20;
const BEFORE = 5;
let looking = null;
let typing = null;
let loading = null;

export function startTalk() {
  if (!document.getElementById("talk")) return;
  document.addEventListener("click", (event) => event.target.id === "talk-more" && more());
  document.addEventListener("click", (event) => event.target.id === "talk-first" && first());
  document.addEventListener("submit", (event) => event.target.id === "talk-find" && event.preventDefault());
  document.addEventListener("input", (event) => {
    if (event.target.id !== "talk-text") return;
    clearTimeout(typing);
    typing = setTimeout(() => find(event.target.value.trim()), 250);
  });
  document.addEventListener("page:changed", follow);
  addEventListener("hashchange", reach);
  watchEnd();
  reach();
}

const end = () => document.getElementById("talk-end");
const list = () => document.getElementById("talk");
const runId = () => decodeURIComponent(document.getElementById("main").dataset.run);
const text = () => document.getElementById("talk-text")?.value.trim() ?? "";

function watchEnd() {
  // Readers who scroll to the end get the next part without asking.
  const observer = new IntersectionObserver(
    (entries) => entries.some((entry) => entry.isIntersecting) && !text() && more(),
    { rootMargin: "600px" },
  );
  observer.observe(end());
}

async function more(limit = PART) {
  const after = end().dataset.next;
  return after ? append(after, limit) : false;
}

// One part at a time: whoever asks meanwhile gets the one that is under way.
function append(after, limit) {
  loading ??= load({ after, limit: String(limit) }, (items) => list().append(...items)).finally(() => {
    loading = null;
  });
  return loading;
}

async function load(items, put) {
  const query = new URLSearchParams({ id: runId(), ...items });
  if (text()) query.set("find", text());
  const signal = looking?.signal;
  const found = await fetchDocument(`/run/messages?${query}`, signal);
  if (found.status !== 200) {
    document.getElementById("talk-said").textContent = "The messages can't be read now.";
    return false;
  }
  put([...found.document.querySelectorAll("body > ol > li")]);
  const fresh = found.document.getElementById("talk-end");
  end().dataset.next = fresh.dataset.next;
  end().replaceChildren(...fresh.childNodes);
  return true;
}

async function find(words) {
  looking?.abort();
  looking = new AbortController();
  try {
    document.getElementById("talk-start").hidden = true;
    let isGood = await load({}, (items) => list().replaceChildren(...items));
    // The explorer looks through a bounded number at a time; a reader wants the first hits.
    while (isGood && words && end().dataset.next && list().children.length < HITS) {
      isGood = await load({ after: end().dataset.next }, (items) => list().append(...items));
    }
  } catch (error) {
    if (error.name !== "AbortError") throw error;
    return;
  }
  const count = list().children.length;
  if (words) say(`${count}${end().dataset.next ? " or more" : ""} messages found`);
}

// New messages of a run that goes on come after those that are there.
async function follow() {
  if (!list() || text() || end().dataset.next || loading) return;
  const last = list().lastElementChild;
  if (last) await append(last.id.slice(2), PART);
}

// A link to a message that is not on the page yet: what is around it is fetched, not all before it.
async function reach() {
  const wanted = decodeURIComponent(location.hash.slice(1));
  const place = /^m-(\d+)\.(\d+)\.(.*)$/s.exec(wanted);
  if (!place) return;
  // One that was found stands without what was said around it.
  if (!document.getElementById(wanted) || text()) {
    document.getElementById("talk-text").value = "";
    const [, epoch, number, step] = place;
    const before = Number(number) - BEFORE;
    if (before < 0) await first();
    else {
      await load({ after: `${epoch}.${before}.${step}`, limit: String(PART) }, (items) => list().replaceChildren(...items));
      document.getElementById("talk-start").hidden = false;
    }
  }
  const item = document.getElementById(wanted);
  if (!item) return;
  item.querySelector("details")?.setAttribute("open", "");
  item.scrollIntoView({ block: "start" });
  // Marks it as the target also when it came after the address was read.
  location.replace(`#${encodeURIComponent(wanted)}`);
}

async function first() {
  await load({}, (items) => list().replaceChildren(...items));
  document.getElementById("talk-start").hidden = true;
}
