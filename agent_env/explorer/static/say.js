// Tells those who can't see that something changed.

export function say(words) {
  const place = document.getElementById("said");
  // The same words twice would be heard once.
  place.textContent = "";
  requestAnimationFrame(() => { place.textContent = words; });
}
