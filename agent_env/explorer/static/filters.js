// Filters act as they are changed. htmx asks and writes the address; the page changes in place.
/* global htmx */
import { morph } from "./morph.js";

export function startFilters() {
  htmx.defineExtension("calm", {
    isInlineSwap: (style) => style === "calm",
    handleSwap(style, target, fragment) {
      if (style !== "calm" || !fragment.firstElementChild) return false;
      morph(target, fragment.firstElementChild);
      return [];
    },
  });
  document.addEventListener("htmx:configRequest", (event) => {
    const { elt, parameters, path } = event.detail;
    if (elt.id !== "filters") return;
    const given = new URLSearchParams([...new FormData(elt)].filter(([, value]) => value !== ""));
    for (const name of new Set([...new FormData(elt)].map(([name]) => name))) {
      if (given.has(name)) parameters[name] = given.getAll(name);
      else delete parameters[name];
    }
    const here = new URLSearchParams(location.search);
    const same = (query) => [...query].map((pair) => pair.join("=")).sort().join("&");
    // Typing and leaving a field are two events for one change.
    if (path === location.pathname && same(given) === same(here)) event.preventDefault();
  });
  // An answer that is no list, an error say, is a page of its own.
  document.addEventListener("htmx:responseError", (event) => location.assign(event.detail.pathInfo.finalRequestPath));
  document.addEventListener("htmx:sendError", (event) => location.assign(event.detail.pathInfo.finalRequestPath));
  document.addEventListener("change", (event) => event.target.closest("#columns") && chooseColumns());
}

function chooseColumns() {
  const chosen = [...document.querySelectorAll("#columns input:checked")].map((box) => box.value);
  const form = document.getElementById("filters");
  const names = ["run", ...chosen].join(",");
  // The usual ones need no words in the address.
  form.elements.columns.value = names === document.getElementById("columns").dataset.usual ? "" : names;
  htmx.trigger(form, "submit");
}
