// Runs before MLflow's own scripts in the page that `marin ui` serves: where its pages begin, and what they show first.
// What somebody chose since, in this browser, stays.
(() => {
  const home = document.currentScript.dataset.home;
  const always_shown = JSON.parse(document.currentScript.dataset.columns);
  const varied = JSON.parse(document.currentScript.dataset.varied); // by experiment: what sets its runs apart
  const always = {
    "mlflow.workflowType_v1": "machine_learning",
    "mlflow.settings.telemetry.enabled_v1": false,
    "mlflow.telemetry.info.alert.dismissed_v1": true,
    "mlflow.assistant.panelOpen_v1": false,
    "mlflow.assistant.fab.autoOpenedOnFirstLoad_v1": true,
  };
  for (const [key, value] of Object.entries(always)) localStorage.setItem(key, JSON.stringify(value));

  // Charts in groups that say what they show. MLflow makes a group of what stands before a slash in a name; the rest is
  // one heap. The names of a run's metrics are asked for once, when its charts are first looked at.
  const groups = [
    ["train loss", (name) => name === "train/loss"],
    ["validation", (name) => /^evaluate\.(loss|perplexity|bits_per_byte)$|^evaluation\/validation/.test(name)],
    ["evaluation", (name) => /^(evaluate\.|evaluation\/)/.test(name)],
    ["training", (name) => name.startsWith("train")],
    ["data", (name) => /^(corpus|tokenizer|tokens)\./.test(name)],
    ["Model metrics", () => true], // MLflow's own name for what has no group: what is told later joins it
  ];
  const inGroups = (names) => {
    const sections = groups.map(([name], at) => ({
      uuid: `marin-${at}`, name, display: name !== "Model metrics", isReordered: false, deleted: false, isGenerated: true,
    }));
    const charts = names.map((name, at) => ({
      type: "BAR", uuid: `marin-chart-${at}`, metricKey: name, runsCountToCompare: 10, deleted: false, isGenerated: true,
      metricSectionId: `marin-${groups.findIndex(([, holds]) => holds(name))}`,
    })); // MLflow makes a line of a bar that has a history
    const used = new Set(charts.map((chart) => chart.metricSectionId));
    return { compareRunCharts: charts, compareRunSections: sections.filter((one) => used.has(one.uuid)) };
  };
  // What the runs of an experiment are compared by; a chart that nothing is drawn in is not shown.
  const compared = ["train/loss", "evaluate.loss", "evaluate.perplexity", "evaluate.bits_per_byte", "train/grad_norm"];

  // The columns of an experiment whose list nobody has arranged yet. MLflow's other defaults are told too, because it
  // takes what it finds as the whole.
  const verdict = "tags.`marin.verified`", loss = "metrics.`evaluate.loss`";
  const arranged = (columns) => {
    const widths = innerWidth < 700 // a telephone has room for name, verdict and loss; the rest is scrolled to
      ? { "attributes.`Run Name`": 128, ...columns, runDateAndNestInfo: 140, duration: 75, [verdict]: 120, [loss]: 78 }
      : { "attributes.`Run Name`": 216, runDateAndNestInfo: 146, ...columns, duration: 78 };
    const order = innerWidth < 700 ? ["attributes.`Run Name`", verdict, loss] : [];
    return JSON.stringify({
      searchFilter: "", orderByKey: "attributes.start_time", orderByAsc: false, startTime: "ALL", lifecycleFilter: "Active",
      datasetsFilter: [], modelVersionFilter: "All Runs", selectedColumns: Object.keys(columns),
      columnOrder: [...order, ...Object.keys(widths).filter((name) => !order.includes(name))], columnWidths: widths,
      runsExpanded: {}, runsPinned: [], runsHidden: [], runsVisibilityMap: {}, runsHiddenMode: "FIRST_10_RUNS",
      viewMaximized: false, runListHidden: false, isAccordionReordered: true, useGroupedValuesInCharts: true,
      hideEmptyCharts: true, groupBy: null, groupsExpanded: {}, autoRefreshEnabled: true,
      globalLineChartConfig: { xAxisKey: "step", lineSmoothness: 0, selectedXAxisMetricKey: "" },
      ...inGroups(compared),
    });
  };
  const untouched = (key) => {
    const number = /-ExperimentPage-\D*(\d+)/.exec(key)?.[1];
    return arranged({ ...varied[number] ?? {}, ...always_shown });
  };

  const metricsOf = (run) => {
    const asked = new XMLHttpRequest();
    asked.open("GET", `ajax-api/2.0/mlflow/runs/get?run_id=${run}`, false);
    asked.send();
    const metrics = asked.status === 200 ? JSON.parse(asked.responseText).run.data.metrics ?? [] : [];
    return metrics.map((one) => one.key).filter((name) => !name.startsWith("system/")).sort();
  };
  const chartsOf = (run) => {
    const names = metricsOf(run);
    return names.length === 0 ? null : JSON.stringify({
      ...inGroups(names), isAccordionReordered: true, autoRefreshEnabled: true,
      globalLineChartConfig: { xAxisKey: "step", lineSmoothness: 0, selectedXAxisMetricKey: "" },
    });
  };
  const read = Storage.prototype.getItem;
  Storage.prototype.getItem = function (key) {
    const found = read.call(this, key);
    if (found !== null) return found;
    const ofRun = /^MLflowLocalStorage-[\d.]+-RunPage-([0-9a-f]{32})-model-chartUIState$/.exec(key);
    if (ofRun) return chartsOf(ofRun[1]);
    return /^MLflowLocalStorage-[\d.]+-ExperimentPage-/.test(key) ? untouched(key) : found;
  };

  const atStart = () => ["", "#", "#/"].includes(location.hash);
  if (atStart()) location.replace(home);
  addEventListener("hashchange", () => atStart() && location.replace(home));
  addEventListener("click", (event) => {
    if (event.target.closest?.('a[href="#/"]')) {
      event.preventDefault();
      event.stopPropagation();
      location.assign(home);
    }
  }, true);

  // Text of others stands in the database as it was logged, and is made visible where it is drawn (as
  // marin/process/text.py does on a terminal): what would steer the page, reorder a line or hide is its escape. Spaces of
  // other widths and what shapes emoji stay, for MLflow's own words use them too; so do joiners in scripts that join.
  const shaped = "\\p{Script=Arabic}\\p{Script=Syriac}\\p{Script=Mongolian}\\p{Script=Devanagari}\\p{Script=Bengali}" +
    "\\p{Script=Gurmukhi}\\p{Script=Gujarati}\\p{Script=Oriya}\\p{Script=Tamil}\\p{Script=Telugu}\\p{Script=Kannada}" +
    "\\p{Script=Malayalam}\\p{Script=Sinhala}\\p{Script=Khmer}\\p{Script=Myanmar}\\p{Extended_Pictographic}" +
    "\\p{Emoji_Modifier}\\ufe0f";
  const unseen = new RegExp(
    `(?<![${shaped}])[\\u200c\\u200d]|(?![\\u200c\\u200d\\t\\n\\r])[\\p{Cc}\\p{Cf}\\p{Cs}\\p{Cn}\\p{Zl}\\p{Zp}` +
      "\\u034f\\u115f\\u1160\\u17b4\\u17b5\\u2800\\u3164\\uffa0\\u180b-\\u180f\\u{e0100}-\\u{e01ef}]", "gu");
  const escaped = (letter) => {
    const code = letter.codePointAt(0);
    const digits = (count) => code.toString(16).padStart(count, "0");
    return code < 256 ? `\\x${digits(2)}` : code < 65536 ? `\\u${digits(4)}` : `\\U${digits(8)}`;
  };
  const drawn = (text) => text.replace(unseen, escaped);
  const written = "textarea, [contenteditable], .monaco-editor, script, style"; // where somebody writes it is the text itself
  const draw = (node) => {
    if (node.nodeType === Node.TEXT_NODE) {
      const text = node.nodeValue;
      if (!node.parentElement?.closest(written) && drawn(text) !== text) node.nodeValue = drawn(text);
    } else if (node.nodeType === Node.ELEMENT_NODE) {
      const title = node.getAttribute("title");
      if (title !== null && drawn(title) !== title) node.setAttribute("title", drawn(title));
      node.childNodes.forEach(draw);
    }
  };
  new MutationObserver((changes) => {
    for (const change of changes) {
      if (change.type === "childList") change.addedNodes.forEach(draw);
      else draw(change.target);
    }
  }).observe(document, {
    subtree: true, childList: true, characterData: true, attributes: true, attributeFilter: ["title"],
  });
})();
