// A button behind each digest that copies all of it. Without scripts a click selects the digest whole.
"use strict";
(() => {
  const copied = async (digest) => {
    try {
      await navigator.clipboard.writeText(digest.title);
    } catch { // in a frame that may not write to the clipboard by itself: as the keyboard does
      getSelection().selectAllChildren(digest);
      document.execCommand("copy");
      getSelection().removeAllRanges();
    }
  };
  for (const digest of document.querySelectorAll("code.digest")) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.title = "copy";
    button.setAttribute("aria-label", `copy ${digest.title.slice(0, 19)}`);
    button.addEventListener("click", async (event) => {
      event.preventDefault();
      event.stopPropagation();
      await copied(digest);
      button.classList.add("done");
      setTimeout(() => button.classList.remove("done"), 1200);
    });
    digest.after(button);
  }
})();
