// A few keys: / finds, j and k go from row to row. Never while someone types.

export function startKeys() {
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") closeDrops();
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
    if (document.querySelector("dialog[open]")) return;
    if (event.key === "/") find(event);
    if (event.key === "j") step(1);
    if (event.key === "k") step(-1);
  });
  document.addEventListener("click", (event) => {
    const own = event.target.closest("details.drop");
    for (const drop of document.querySelectorAll("details.drop[open]")) if (drop !== own) drop.open = false;
  });
}

function isTyping(target) {
  if (target.tagName === "INPUT") return !["checkbox", "radio"].includes(target.type);
  return ["TEXTAREA", "SELECT"].includes(target.tagName) || target.isContentEditable;
}

function find(event) {
  // What the page itself is about comes before the search over everything.
  const field = ["text", "talk-text", "go"]
    .map((id) => document.getElementById(id))
    .find((each) => each?.checkVisibility());
  if (!field) return;
  event.preventDefault();
  field.focus();
  field.select();
}

function step(by) {
  const links = [...document.querySelectorAll("a.row-link")];
  const at = links.indexOf(document.activeElement);
  const next = at < 0 ? links[0] : links[Math.min(links.length - 1, Math.max(0, at + by))];
  next?.focus();
  next?.scrollIntoView({ block: "nearest" });
}

function closeDrops() {
  for (const drop of document.querySelectorAll("details.drop[open]")) {
    const had = drop.contains(document.activeElement);
    drop.open = false;
    if (had) drop.querySelector("summary").focus();
  }
}
