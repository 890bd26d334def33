// Cancel, run again, force stop: each asks first, says what came of it, and shows it at once.
import { refresh } from "./refresh.js";
import { say } from "./say.js";

const SHOWN_MS = 10000;
let timer = null;

export function startCancel() {
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-cancel-run], [data-cancel-group], [data-terminate], [data-again]");
    if (button) act(button);
  });
  for (const dialog of document.querySelectorAll("dialog")) {
    dialog.querySelector("[data-close]").addEventListener("click", () => dialog.close());
  }
}

function act(button) {
  const { cancelRun, cancelGroup, terminate, again } = button.dataset;
  if (again) return runAgain(button, decodeURIComponent(again));
  if (terminate) {
    const id = decodeURIComponent(terminate);
    return ask("terminate", `Force stop ${id}?`, "Force stop without teardown", (reason) =>
      change("/api/terminate", { run_id: id, reason }));
  }
  if (cancelRun) {
    const id = decodeURIComponent(cancelRun);
    return ask("cancel", `Cancel ${id}?`, "Cancel episode", (reason) => change("/api/cancel", { run_id: id, reason }));
  }
  const id = decodeURIComponent(cancelGroup);
  const count = Number(button.dataset.live);
  const many = count === 1 ? "1 episode" : `${count.toLocaleString("en")} episodes`;
  return ask("cancel", `Cancel ${many} of ${id}?`, `Cancel ${many}`, (reason) =>
    change("/api/cancel", { run_group_id: id, reason }));
}

function ask(kind, title, words, send) {
  const dialog = document.getElementById(`${kind}-dialog`);
  const go = document.getElementById(`${kind}-go`);
  const reason = document.getElementById(`${kind}-reason`);
  const said = dialog.querySelector(".said");
  dialog.querySelector("h2").textContent = title;
  go.textContent = words;
  go.disabled = false;
  said.textContent = "";
  reason.value = "";
  dialog.querySelector("form").onsubmit = async (event) => {
    event.preventDefault();
    go.disabled = true;
    go.textContent = "Asking…";
    const answer = await send(reason.value.trim());
    go.disabled = false;
    go.textContent = words;
    if (answer.error) {
      said.textContent = answer.error;
      return;
    }
    dialog.close();
    tell(answer.detail);
    await refresh().catch(() => {});
  };
  dialog.showModal();
  reason.focus();
}

async function runAgain(button, id) {
  button.disabled = true;
  const answer = await change("/api/run-again", { run_id: id });
  button.disabled = false;
  if (answer.error) tell(answer.error, "s-failed");
  else location.assign(`/run?${new URLSearchParams({ id: answer.run_id })}`);
}

export async function change(path, body) {
  try {
    const answer = await fetch(path, {
      method: "POST",
      headers: { "Content-Type": "application/json", "X-Episodes": "explorer" },
      body: JSON.stringify(body),
    });
    const found = await answer.json();
    if (!answer.ok) return { error: found.error?.message ?? `It answered ${answer.status}.` };
    return found;
  } catch {
    return { error: "The explorer does not answer. Nothing was changed, as far as is known." };
  }
}

function tell(words, kind = "") {
  say(words);
  const notice = document.createElement("div");
  notice.className = `notice ${kind}`;
  const text = document.createElement("p");
  text.textContent = words;
  const close = document.createElement("button");
  close.type = "button";
  close.className = "button plain low";
  close.textContent = "Close";
  close.addEventListener("click", () => notice.remove());
  notice.append(text, close);
  const place = document.getElementById("told");
  place.replaceChildren(notice);
  clearTimeout(timer);
  timer = setTimeout(() => notice.remove(), SHOWN_MS);
}
