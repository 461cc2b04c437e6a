// What was asked for is chosen and in sight, and only its panel is open; filter, zoom, drag and arrow keys, on d3 (which stands
// before this in the page). Without scripts the page has the same links and all panels, one below the other: the graph is
// drawn already, and nothing here makes markup out of data.
"use strict";
(() => {
  const frame = d3.select(".graph"), svg = frame.select("svg"), view = svg.select("g.view");
  const drawn = {width: Number(svg.attr("width")), height: Number(svg.attr("height"))};
  const nodes = svg.selectAll("a.node").datum(function () {
    const box = this.querySelector("rect");
    return {id: this.dataset.id, layer: this.dataset.layer, x: box.x.baseVal.value, y: box.y.baseVal.value,
            width: box.width.baseVal.value, height: box.height.baseVal.value};
  });
  if (nodes.empty()) return;
  const edges = svg.selectAll("path.edge").datum(function () { return {from: this.dataset.from, to: this.dataset.to}; });
  const byId = new Map(nodes.nodes().map(node => [node.dataset.id, node]));
  const layers = d3.nest().key(node => node.dataset.layer).map(nodes.nodes());
  const after = d3.nest().key(edge => edge.from).map(edges.data());
  const before = d3.nest().key(edge => edge.to).map(edges.data());
  const whole = innerWidth < 600 ? downwards() : drawn;

  // On a narrow screen the graph goes from top to bottom: what is drawn side by side, one column after another, becomes rows.
  function downwards() {
    const gap = 20, rise = 44, margin = 14;
    const rows = d3.nest().key(node => node.x).sortKeys((a, b) => a - b).entries(nodes.data()).map(row => row.values);
    const across = row => d3.sum(row, node => node.width) + gap * (row.length - 1);
    const width = d3.max(rows, across) + 2 * margin;
    let y = margin;
    rows.forEach(row => {
      let x = (width - across(row)) / 2;
      row.sort((a, b) => a.y - b.y).forEach(node => {
        Object.assign(node, {right: x - node.x, down: y - node.y, x, y});
        x += node.width + gap;
      });
      y += row[0].height + rise;
    });
    nodes.attr("transform", node => `translate(${node.right} ${node.down})`);
    const at = new Map(nodes.data().map(node => [node.id, node]));
    edges.attr("d", edge => {
      const from = at.get(edge.from), to = at.get(edge.to);
      const x = from.x + from.width / 2, top = from.y + from.height, u = to.x + to.width / 2;
      const far = to.y - top > 2 * rise ? (u < width / 2 ? -1 : 1) * to.width * 0.6 : 0; // around what stands between
      return `M${x} ${top}C${x + far} ${top + rise} ${u + far} ${to.y - rise} ${u} ${to.y}`;
    });
    return {width, height: y - rise + margin};
  }

  // What is seen: a window on the whole drawing, moved and scaled by d3.
  const size = () => ({width: frame.node().clientWidth, height: frame.node().clientHeight});
  const zoom = d3.zoom().scaleExtent([Math.min(0.1, 300 / whole.height), 4]).clickDistance(4)
    .translateExtent([[-200, -200], [whole.width + 200, whole.height + 200]])
    // The wheel scrolls the page unless Ctrl (or two fingers) say that the graph is meant.
    .filter(() => !d3.event.button && (d3.event.type !== "wheel" || d3.event.ctrlKey))
    .wheelDelta(() => -d3.event.deltaY * (d3.event.deltaMode ? 0.05 : 0.01))
    .extent(() => { const {width, height} = size(); return [[0, 0], [width, height]]; })
    .on("start", () => { if (edges.size() > 1000) svg.classed("moving", true); })  // thousands of curves wait for the end
    .on("zoom", () => {
      view.attr("transform", d3.event.transform);
      svg.classed("tiny", d3.event.transform.k < 0.35);
    })
    .on("end", () => svg.classed("moving", false));
  frame.classed("alive", true).style("height", `${Math.min(whole.height + 2, Math.max(240, Math.round(innerHeight * 0.7)))}px`);
  svg.attr("width", null).attr("height", null).attr("viewBox", null).call(zoom).on("dblclick.zoom", null);

  function begin(box) {  // all of it where it can be read, else readable around what was chosen
    const {width, height} = size(), fit = Math.min(width / whole.width, height / whole.height);
    if (fit >= 0.55) return everything();
    svg.call(zoom.scaleTo, 0.85);
    svg.call(zoom.translateTo, box.x + box.width / 2, box.y + box.height / 2);
  }
  function everything() {
    const {width, height} = size(), scale = Math.min(1, width / whole.width, height / whole.height);
    svg.call(zoom.transform, d3.zoomIdentity.translate((width - whole.width * scale) / 2, (height - whole.height * scale) / 2).scale(scale));
  }
  function reveal(box) {  // move only if it is out of sight
    frame.node().scrollTop = frame.node().scrollLeft = 0;
    const {width, height} = size(), now = d3.zoomTransform(svg.node());
    const [left, top] = now.apply([box.x, box.y]), [right, bottom] = now.apply([box.x + box.width, box.y + box.height]);
    if (left < 0 || top < 0 || right > width || bottom > height) svg.call(zoom.translateTo, box.x + box.width / 2, box.y + box.height / 2);
  }

  // What is lit: everything that led to a node or follows from it.
  function reached(start, ways, end) {
    const found = new Set([start]), waiting = [start];
    while (waiting.length) for (const edge of ways.get(waiting.pop()) || []) if (!found.has(edge[end])) { found.add(edge[end]); waiting.push(edge[end]); }
    return found;
  }
  function light(id) {
    const lit = id ? new Set([...reached(id, before, "from"), ...reached(id, after, "to")]) : null;
    nodes.classed("far", node => lit && !lit.has(node.id));
    edges.classed("far", edge => lit && !(lit.has(edge.from) && lit.has(edge.to)));
    edges.classed("near", edge => lit && lit.has(edge.from) && lit.has(edge.to));
  }
  const panels = d3.selectAll("section[data-search]").datum(function () { return {id: this.id, text: this.dataset.search}; });
  let chosen = null;
  function choose(id) {
    if (!byId.has(id)) return;
    chosen = id;
    nodes.classed("chosen", node => node.id === id);
    panels.property("hidden", panel => panel.id !== id);
    light(id);
  }
  function go(id) {
    const node = byId.get(id);
    if (node) node.focus({preventScroll: true});
  }
  function beside(node, step) {
    const layer = layers.get(node.layer);
    const other = layer[layer.indexOf(byId.get(node.id)) + step];
    return other && other.dataset.id;
  }
  nodes.on("focus", node => { light(node.id); reveal(node); }).on("keydown", function (node) {
    const {key} = d3.event, next = after.get(node.id), last = before.get(node.id);
    const target = {ArrowRight: next && next[0].to, ArrowLeft: last && last[0].from, ArrowDown: beside(node, 1),
                    ArrowUp: beside(node, -1)}[key];
    if (key === "Escape") { light(chosen); this.blur(); }
    if (target) { d3.event.preventDefault(); go(target); }
  });
  frame.on("keydown", () => {  // on the frame itself: move the window
    if (d3.event.target !== frame.node()) return;
    const by = {ArrowLeft: [80, 0], ArrowRight: [-80, 0], ArrowUp: [0, 80], ArrowDown: [0, -80]}[d3.event.key];
    const scale = {"+": 1.25, "=": 1.25, "-": 0.8}[d3.event.key];
    const k = d3.zoomTransform(svg.node()).k;
    if (by) svg.call(zoom.translateBy, by[0] / k, by[1] / k);
    if (scale) svg.call(zoom.scaleBy, scale);
    if (d3.event.key === "0") everything();
    if (by || scale || d3.event.key === "0") d3.event.preventDefault();
  });

  const tools = d3.select(".tools").property("hidden", false);
  tools.selectAll("button").on("click", function () {
    if (this.value === "all") everything();
    else svg.call(zoom.scaleBy, Number(this.value));
  });
  const find = tools.select("input"), count = tools.select("output"), found = d3.select(".found");
  find.on("input", () => {
    const wanted = find.property("value").trim().toLowerCase();
    const hits = panels.data().filter(panel => wanted && panel.text.includes(wanted)).map(panel => panel.id);
    const those = new Set(hits);
    nodes.classed("hit", node => those.has(node.id)).classed("far", node => wanted && !those.has(node.id));
    edges.classed("far", wanted !== "").classed("near", false);
    count.text(wanted ? `${hits.length} found` : "");
    const names = found.selectAll("li").data(hits.slice(0, 30), id => id);
    names.exit().remove();
    names.enter().append("li").append("a").attr("href", id => `#${id}`).text(id => byId.get(id).getAttribute("aria-label"));
    if (!wanted) light(chosen);
  }).on("keydown", () => {
    const first = nodes.filter(".hit");
    if (d3.event.key === "Enter" && !first.empty()) go(first.datum().id);
  });
  const asked = () => byId.has(location.hash.slice(1)) ? location.hash.slice(1) : "";
  d3.select(window).on("hashchange", () => choose(asked())).on("resize", () => chosen && reveal(d3.select(byId.get(chosen)).datum()));
  choose(asked() || frame.attr("data-asked") || nodes.datum().id);
  begin(d3.select(byId.get(chosen)).datum());
})();
