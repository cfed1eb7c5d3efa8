// Pages that stay open: what a person has opened or typed is kept, and hidden tabs disconnect.
"use strict";
(() => {
  const main = document.getElementById("main");
  const isTyped = (node) => node.nodeName === "FORM" && node.querySelector("input:not([type=hidden]), select");
  Idiomorph.defaults.callbacks.beforeNodeMorphed = (node) => !isTyped(node);
  Idiomorph.defaults.callbacks.beforeAttributeUpdated = (name, node) => !(name === "open" && node.nodeName === "DETAILS");

  const say = (text) => { document.getElementById("connection").textContent = text; };
  main.addEventListener("htmx:sseError", () => say("No connection to the service: the page is not up to date."));
  main.addEventListener("htmx:sseOpen", () => say(""));

  // The extension connects an element that is processed, and disconnects one that is removed.
  const connect = () => htmx.trigger(main, document.hidden ? "htmx:beforeCleanupElement" : "htmx:afterProcessNode");
  document.addEventListener("visibilitychange", connect);
  addEventListener("load", () => { if (document.hidden) connect(); });
})();
