// The address under which this page was opened stands in its commands.
"use strict";
(() => {
  if (!location.protocol.startsWith("http")) return;
  const here = location.href.replace(/[?#].*$/, "").replace(/index\.html$/, "");
  const root = new URL("../..", here).href.replace(/\/$/, "");
  document.querySelector("[data-unfilled]")?.remove();
  for (const node of document.querySelectorAll("[data-here]")) node.textContent = node.textContent.replace("ADDRESS", here).replace("ROOT", root);
})();
