// Filter, zoom and arrow keys for the lineage graph. Without this script the page is the same, with links and scrolling.
"use strict";
const svg = document.querySelector(".graph svg");
const nodes = svg ? [...svg.querySelectorAll("a.node")] : [];
const byId = new Map(nodes.map(node => [node.dataset.id, node]));
const edges = svg ? [...svg.querySelectorAll("path.edge")] : [];
const before = new Map(), after = new Map();
for (const edge of edges) {
  const {from, to} = edge.dataset;
  (after.get(from) ?? after.set(from, []).get(from)).push(to);
  (before.get(to) ?? before.set(to, []).get(to)).push(from);
}
function reached(start, ways) {
  const found = new Set([start]), waiting = [start];
  while (waiting.length) for (const next of ways.get(waiting.pop()) ?? []) if (!found.has(next)) { found.add(next); waiting.push(next); }
  return found;
}
function light(id) {
  const lit = id ? new Set([...reached(id, before), ...reached(id, after)]) : null;
  for (const node of nodes) node.classList.toggle("far", lit !== null && !lit.has(node.dataset.id));
  for (const edge of edges) {
    edge.classList.toggle("far", lit !== null && !(lit.has(edge.dataset.from) && lit.has(edge.dataset.to)));
    edge.classList.toggle("near", lit !== null && lit.has(edge.dataset.from) && lit.has(edge.dataset.to));
  }
}
function go(id) {
  const node = byId.get(id);
  if (node) { node.focus({preventScroll: true}); node.scrollIntoView({block: "nearest", inline: "center"}); }
}
function beside(node, step) {
  const layer = nodes.filter(other => other.dataset.layer === node.dataset.layer);
  return layer[layer.indexOf(node) + step]?.dataset.id;
}
for (const node of nodes) {
  node.addEventListener("focus", () => light(node.dataset.id));
  node.addEventListener("keydown", event => {
    const id = node.dataset.id;
    const target = {ArrowRight: after.get(id)?.[0], ArrowLeft: before.get(id)?.[0], ArrowDown: beside(node, 1),
                    ArrowUp: beside(node, -1)}[event.key];
    if (event.key === "Escape") { light(null); node.blur(); }
    if (target) { event.preventDefault(); go(target); }
  });
}
const frame = document.querySelector(".graph");
if (nodes.length) {  // begin at the raw data, wherever its layer stands
  const first = nodes[0].querySelector("rect");
  frame.scrollTop = first.y.baseVal.value - frame.clientHeight / 3;
}
let scale = 1;
function zoom(by) {
  scale = by === 0 ? 1 : Math.min(4, Math.max(0.05, scale * by));
  svg.setAttribute("width", svg.viewBox.baseVal.width * scale);
  svg.setAttribute("height", svg.viewBox.baseVal.height * scale);
}
if (svg) {
  document.querySelector(".tools").hidden = false;
  for (const button of document.querySelectorAll(".tools button")) button.addEventListener("click", () => zoom(Number(button.value)));
  const find = document.querySelector(".tools input"), count = document.querySelector(".tools output");
  const sections = [...document.querySelectorAll("section[data-search]")];
  find.addEventListener("input", () => {
    const wanted = find.value.trim().toLowerCase();
    const hits = new Set(sections.filter(part => wanted && part.dataset.search.includes(wanted)).map(part => part.id));
    for (const node of nodes) { node.classList.toggle("hit", hits.has(node.dataset.id)); node.classList.toggle("far", wanted !== "" && !hits.has(node.dataset.id)); }
    for (const part of sections) part.hidden = wanted !== "" && !hits.has(part.id);
    count.textContent = wanted ? `${hits.size} found` : "";
  });
  find.addEventListener("keydown", event => {
    const first = nodes.find(node => node.classList.contains("hit"));
    if (event.key === "Enter" && first) go(first.dataset.id);
  });
}
