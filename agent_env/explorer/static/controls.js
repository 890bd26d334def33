// Small things: the theme, copying a command, choosing runs to compare.
import { say } from "./say.js";

const THEMES = ["auto", "light", "dark"];

export function startControls() {
  startTheme();
  revealCopy();
  document.addEventListener("page:changed", revealCopy);
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-copy]");
    if (button) copy(button);
  });
  document.addEventListener("change", (event) => event.target.form?.id === "compare" && countChosen());
  document.addEventListener("submit", (event) => {
    if (event.target.id !== "compare" || isEnough(chosen().length)) return;
    event.preventDefault();
    say("Choose two to eight members to compare");
    document.getElementById("compare-said").textContent = `choose two to eight; now ${chosen().length}`;
  });
  document.addEventListener("page:changed", countChosen);
  countChosen();
}

function startTheme() {
  const button = document.getElementById("theme");
  const now = () => document.documentElement.dataset.theme ?? "auto";
  const show = () => {
    button.textContent = { auto: "◐ Auto", light: "○ Light", dark: "● Dark" }[now()];
    button.setAttribute("aria-label", `Theme: ${now()}`);
  };
  button.hidden = false;
  show();
  button.addEventListener("click", () => {
    const next = THEMES[(THEMES.indexOf(now()) + 1) % THEMES.length];
    if (next === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = next;
    try {
      localStorage.setItem("episodes-theme", next);
    } catch {
      // It holds for this page, then.
    }
    show();
    say(`Theme: ${next}`);
  });
}

function revealCopy() {
  if (!navigator.clipboard) return;
  for (const button of document.querySelectorAll("[data-copy][hidden]")) button.hidden = false;
}

async function copy(button) {
  try {
    await navigator.clipboard.writeText(button.dataset.copy);
    button.textContent = "Copied";
    say("Copied");
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  } catch {
    say("Copying was refused");
  }
}

const chosen = () => [...document.querySelectorAll('input[name="run"][form="compare"]:checked')];
const isEnough = (count) => count >= 2 && count <= 8;

function countChosen() {
  const said = document.getElementById("compare-said");
  if (!said) return;
  const count = chosen().length;
  said.textContent = count === 0 ? "choose two to eight" : `${count} chosen`;
  if (count > 8) said.textContent = `${count} chosen; eight at most`;
}
