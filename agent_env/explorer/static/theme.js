// Before anything is drawn: the theme the reader chose. Without a choice, the system's.
(() => {
  try {
    const theme = localStorage.getItem("episodes-theme");
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  } catch {
    // No storage: the system's theme it is.
  }
})();
