// A long conversation: more of it on demand, a search, and links to single messages.
import { fetchDocument } from "./morph.js";
import { say } from "./say.js";

const PART = 200;
const HITS = 20;
const BEFORE = 5;
let typing = null;
let underWay = null;
let isFollowing = false;
// Counts how often the list began anew: a part of the one before comes too late.
let shown = 0;
// Readers who scroll to the end get the next part without asking.
const atEnd = new IntersectionObserver(
  (entries) => entries.some((entry) => entry.isIntersecting) && !text() && more(),
  { rootMargin: "600px" },
);

export function startTalk() {
  if (document.getElementById("main")?.dataset.page !== "run") return;
  document.addEventListener("click", (event) => event.target.id === "talk-more" && more());
  document.addEventListener("click", (event) => event.target.id === "talk-first" && first());
  document.addEventListener("submit", (event) => event.target.id === "talk-find" && event.preventDefault());
  document.addEventListener("input", (event) => {
    if (event.target.id !== "talk-text") return;
    clearTimeout(typing);
    typing = setTimeout(() => find(event.target.value.trim()), 250);
  });
  document.addEventListener("page:changed", () => {
    watchEnd(); // it comes with the first message
    follow();
  });
  addEventListener("hashchange", reach);
  watchEnd();
  reach();
}

const end = () => document.getElementById("talk-end");
const list = () => document.getElementById("talk");
const runId = () => decodeURIComponent(document.getElementById("main").dataset.run);
const text = () => document.getElementById("talk-text")?.value.trim() ?? "";

function watchEnd() {
  if (end()) atEnd.observe(end());
}

function more() {
  if (end().dataset.next && !underWay) append();
}

// New messages of a run that goes on come after those that are there.
async function follow() {
  if (isFollowing) return;
  isFollowing = true;
  await settled();
  isFollowing = false;
  if (list() && !text() && !end().dataset.next) append();
}

// Nothing is asked for after a part that may still come, or after a list that is about to begin anew.
async function settled() {
  while (underWay) await underWay;
}

async function append() {
  await settled();
  const after = end().dataset.next || list().lastElementChild?.id.slice(2);
  const part = { limit: String(PART), ...(after && { after }) };
  return start(load(part, (items) => list().append(...items)));
}

function replace(part) {
  shown += 1;
  return start(load(part, (items) => list().replaceChildren(...items)));
}

function start(loading) {
  underWay = loading;
  return loading.finally(() => {
    if (underWay === loading) underWay = null;
  });
}

// Whether it was put there.
async function load(part, put) {
  const at = shown;
  const query = new URLSearchParams({ id: runId(), ...part });
  if (text()) query.set("find", text());
  const found = await fetchDocument(`/run/messages?${query}`).catch(() => null);
  if (at !== shown) return false;
  if (found?.status !== 200) {
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
  document.getElementById("talk-start").hidden = true;
  let isThere = await replace({});
  // The explorer looks through a bounded number at a time; a reader wants the first hits.
  while (isThere && words && end().dataset.next && list().children.length < HITS) isThere = await append();
  const count = list().children.length;
  if (isThere && words) say(`${count}${end().dataset.next ? " or more" : ""} messages found`);
}

// A link to a message that is not on the page yet: what is around it is fetched, not all before it.
async function reach() {
  const wanted = decodeURIComponent(location.hash.slice(1));
  const place = /^m-(\d+)\.(\d+)\.(.*)$/s.exec(wanted);
  if (!place || !list()) return;
  // One that was found stands without what was said around it.
  if (!document.getElementById(wanted) || text()) {
    document.getElementById("talk-text").value = "";
    const [, epoch, number, step] = place;
    const before = Number(number) - BEFORE;
    if (before < 0) await first();
    else if (await replace({ after: `${epoch}.${before}.${step}`, limit: String(PART) })) {
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
  if (await replace({})) document.getElementById("talk-start").hidden = true;
}
