// Changes a part of the page in place: what someone opened stays open, focus and selection survive.
/* global Idiomorph, htmx */
import { localize } from "./times.js";

const callbacks = {
  beforeAttributeUpdated(name, node) {
    // The reader opened or closed it, not the server.
    return !(name === "open" && (node.tagName === "DETAILS" || node.tagName === "DIALOG"));
  },
  beforeNodeMorphed(old) {
    return !(old.nodeType === Node.ELEMENT_NODE && old.hasAttribute("data-keep"));
  },
};

export function morph(target, fresh) {
  localize(fresh);
  // It would keep all that stands in the element with focus: right for what is being typed, wrong for a button.
  const ignoreActiveValue = document.activeElement?.matches("input, textarea, select") ?? false;
  Idiomorph.morph(target, fresh, { morphStyle: "outerHTML", ignoreActiveValue, callbacks });
  const now = document.getElementById(fresh.id) ?? target;
  htmx.process(now);
  document.dispatchEvent(new CustomEvent("page:changed"));
}

const view = () => location.pathname + location.search;
let pages = 0;

// An answer is stale when the page shows something else by then, other columns, another filter, and when the whole
// page has been asked for since: an older answer never lies over a newer one.
export function staleness() {
  const [asked, at] = [view(), pages];
  return () => view() !== asked || pages !== at;
}

export async function fetchPage(url) {
  pages += 1;
  return fetchDocument(url);
}

export async function fetchDocument(url) {
  const isStale = staleness();
  const answer = await fetch(url, { headers: { Accept: "text/html" } });
  const text = await answer.text();
  const found = new DOMParser().parseFromString(text, "text/html");
  return { status: answer.status, url: answer.url, isStale: isStale(), document: found };
}
