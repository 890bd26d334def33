// A long conversation: more of it on demand, a search, and links to single messages.
import { fetchDocument } from "./morph.js";
import { say } from "./say.js";

const PART = 200;
let looking = null;
let typing = null;
let isLoading = false;

export function startTalk() {
  if (!document.getElementById("talk")) return;
  document.addEventListener("click", (event) => event.target.id === "talk-more" && more());
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
  if (!after || isLoading) return false;
  isLoading = true;
  try {
    return await load({ after, limit: String(limit) }, (items) => list().append(...items));
  } finally {
    isLoading = false;
  }
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
    await load({}, (items) => list().replaceChildren(...items));
  } catch (error) {
    if (error.name !== "AbortError") throw error;
    return;
  }
  const count = list().children.length;
  if (words) say(`${count}${end().dataset.next ? " or more" : ""} messages found`);
}

// New messages of a run that goes on come after those that are there.
async function follow() {
  if (!list() || text() || end().dataset.next || isLoading) return;
  const last = list().lastElementChild;
  if (!last) return;
  isLoading = true;
  try {
    await load({ after: last.id.slice(2), limit: String(PART) }, (items) => list().append(...items));
  } finally {
    isLoading = false;
  }
}

// A link to a message that is not on the page yet.
async function reach() {
  const wanted = decodeURIComponent(location.hash.slice(1));
  if (!wanted.startsWith("m-")) return;
  const found = () => document.getElementById(wanted);
  if (!found() && text()) {
    document.getElementById("talk-text").value = "";
    await find("");
  }
  while (!found() && (await more(500)));
  const item = found();
  if (!item) return;
  item.querySelector("details")?.setAttribute("open", "");
  item.scrollIntoView({ block: "start" });
  // Marks it as the target also when it came after the address was read.
  location.replace(`#${encodeURIComponent(wanted)}`);
}
