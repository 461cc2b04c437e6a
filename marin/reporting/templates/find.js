// Type to find: of every table the rows that hold what was typed stay, with how many there are. Without scripts all are there.
"use strict";
(() => {
  const bar = document.querySelector(".find");
  if (!bar) return;
  const field = bar.querySelector("input"), count = bar.querySelector("output");
  const rows = [...document.querySelectorAll("main table tbody tr")].map((row) => ({ row, text: row.textContent.toLowerCase() }));
  bar.hidden = false;
  field.addEventListener("input", () => {
    const wanted = field.value.trim().toLowerCase().split(/\s+/).filter(Boolean);
    let found = 0;
    for (const { row, text } of rows) {
      const here = wanted.every((word) => text.includes(word));
      row.hidden = !here;
      found += here;
    }
    count.textContent = wanted.length ? `${found} found` : "";
  });
})();
